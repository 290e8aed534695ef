// Watches over one WebSocket, as Vitastor holds them: three ids of its own choice, progress asked for every second.
import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { Socket, b64, post, put } from './socket.js';

const ROUNDS = 5;
const ROUND_MS = 1000;

let open = [];
afterEach(() => {
    for (const socket of open) socket.ws.terminate();
    open = [];
});
const connect = async (...args) => {
    const socket = await Socket.open(...args);
    open.push(socket);
    return socket;
};
const below = (prefix) => ({ key: b64(prefix), range_end: b64(prefix.slice(0, -1) + '0') });
const revision = async () => (await post('/v3/kv/range', { key: b64('absent') })).header.revision;

test('three watches with ids of the client; every event comes under the right id', async () => {
    const socket = await connect();
    const start = await revision();
    for (const id of [1, 2, 3]) {
        const created = await socket.create({
            ...below(`route${id}/`),
            // A number or a text: both are in use.
            start_revision: id === 2 ? String(+start + 1) : +start + 1,
            watch_id: id,
            progress_notify: true,
        });
        assert.equal(created.watch_id, String(id));
        assert.equal(created.created, true);
        assert.equal(created.events, undefined);
    }
    await put('route3/a', 'x');
    await put('route1/a', 'y');
    await put('route4/a', 'nobody watches');
    await post('/v3/kv/deleterange', { key: b64('route1/a') });
    await put('route2/a', 'z');
    assert.deepEqual(await socket.events(4), [
        ['3', 'PUT', 'route3/a', 'x'],
        ['1', 'PUT', 'route1/a', 'y'],
        ['1', 'DELETE', 'route1/a', ''],
        ['2', 'PUT', 'route2/a', 'z'],
    ]);
});

test('a request for progress every second is answered every time, and after the events before it', async () => {
    const socket = await connect();
    for (const id of [1, 2, 3]) await socket.create({ ...below(`progress${id}/`), watch_id: id, progress_notify: true });
    for (let round = 0; round < ROUNDS; round += 1) {
        const next = new Promise((resolve) => setTimeout(resolve, ROUND_MS));
        const written = await put(`progress${1 + (round % 3)}/a`, String(round));
        const event = await socket.result();
        assert.equal(event.watch_id, String(1 + (round % 3)));
        assert.equal(event.events[0].kv.mod_revision, written);
        socket.send({ progress_request: {} });
        const progress = await socket.result();
        assert.equal(progress.watch_id, '-1');
        assert.equal(progress.events, undefined);
        assert.ok(BigInt(progress.header.revision) >= BigInt(written));
        await next;
    }
    assert.equal(socket.closed, null);
    assert.deepEqual(socket.inbox, []);
});

test('one JSON value in each text message, without a line end', async () => {
    const socket = await connect();
    socket.send({ create_request: { ...below('frames/'), watch_id: 7 } });
    const created = await socket.message();
    assert.equal(created.isBinary, false);
    assert.equal(created.raw, JSON.stringify(JSON.parse(created.raw)));
    for (let number = 0; number < 100; number += 1) await put(`frames/${number}`);
    for (let seen = 0; seen < 100; ) {
        const { raw, isBinary } = await socket.message();
        assert.equal(isBinary, false);
        assert.equal(raw, JSON.stringify(JSON.parse(raw)));
        seen += JSON.parse(raw).result.events.length;
    }
});

test('the server counts ids from 0 when the client chooses none', async () => {
    const socket = await connect();
    assert.equal((await socket.create(below('auto/'))).watch_id, undefined, '0 is left out');
    assert.equal((await socket.create(below('auto/'))).watch_id, '1');
});

test('an id that is taken is refused, and the watch that has it goes on', async () => {
    const socket = await connect();
    await socket.create({ ...below('twice/'), watch_id: 5 });
    const refused = await socket.create({ ...below('twice/'), watch_id: 5 });
    assert.equal(refused.canceled, true);
    assert.match(refused.cancel_reason, /duplicate watch ID/);
    await put('twice/a', 'x');
    assert.deepEqual(await socket.events(1), [['5', 'PUT', 'twice/a', 'x']]);
});

test('a cancelled watch is told so and is silent then; the others go on', async () => {
    const socket = await connect();
    for (const id of [1, 2]) await socket.create({ ...below('cancel/'), watch_id: id });
    socket.send({ cancel_request: { watch_id: 1 } });
    const cancelled = await socket.result();
    assert.deepEqual([cancelled.watch_id, cancelled.canceled], ['1', true]);
    await put('cancel/a', 'x');
    assert.deepEqual(await socket.events(1), [['2', 'PUT', 'cancel/a', 'x']]);
    // Its id is free again.
    assert.equal((await socket.create({ ...below('cancel/'), watch_id: '1' })).watch_id, '1');
});

test('a second socket goes on after the last revision of the first', async () => {
    const first = await connect();
    await first.create({ ...below('resume/'), watch_id: 1 });
    await put('resume/a', '1');
    const last = (await first.result()).header.revision;
    await first.close(1000);
    await put('resume/a', '2');
    await put('resume/b', '3');
    const second = await connect();
    await second.create({ ...below('resume/'), watch_id: 1, start_revision: String(BigInt(last) + 1n) });
    assert.deepEqual(await second.events(2), [
        ['1', 'PUT', 'resume/a', '2'],
        ['1', 'PUT', 'resume/b', '3'],
    ]);
});

test('a start that is compacted cancels that watch only', async () => {
    const socket = await connect();
    const start = await put('compact/a', '1');
    const compacted = await put('compact/a', '2');
    await post('/v3/kv/compaction', { revision: compacted });
    await socket.create({ ...below('compact/'), watch_id: 1 });
    assert.equal((await socket.create({ ...below('compact/'), watch_id: 2, start_revision: start })).created, true);
    const cancelled = await socket.result();
    assert.deepEqual(
        [cancelled.watch_id, cancelled.canceled, cancelled.compact_revision],
        ['2', true, compacted],
    );
    await put('compact/a', '3');
    assert.deepEqual(await socket.events(1), [['1', 'PUT', 'compact/a', '3']]);
});

test('the value before, filters, and the events of one txn in one message', async () => {
    const socket = await connect();
    await put('txn/a', 'before');
    await socket.create({ ...below('txn/'), watch_id: 1, prev_kv: true, filters: ['NODELETE'] });
    await post('/v3/kv/txn', {
        success: [
            { requestPut: { key: b64('txn/a'), value: b64('after') } },
            { requestPut: { key: b64('txn/b'), value: b64('new') } },
        ],
    });
    const { events } = await socket.result();
    assert.deepEqual(
        events.map(({ kv, prev_kv: before }) => [kv.value, before?.value]),
        [
            [b64('after'), b64('before')],
            [b64('new'), undefined],
        ],
    );
    await post('/v3/kv/deleterange', { key: b64('txn/a') });
    await put('txn/c', 'x');
    assert.deepEqual(await socket.events(1), [['1', 'PUT', 'txn/c', 'x']], 'the delete is left out');
});

test('an event of a megabyte comes whole', async () => {
    const socket = await connect();
    const value = Buffer.alloc(1024 * 1024, 'x').toString();
    await socket.create({ ...below('large/'), watch_id: 1 });
    await put('large/a', value);
    assert.deepEqual(await socket.events(1), [['1', 'PUT', 'large/a', value]]);
});

test('a message in fragments is one message', async () => {
    const socket = await connect();
    const request = JSON.stringify({ create_request: { ...below('fragment/'), watch_id: 9 } });
    for (let at = 0; at < request.length; at += 7) {
        socket.ws.send(request.slice(at, at + 7), { fin: at + 7 >= request.length });
    }
    assert.equal((await socket.result()).watch_id, '9');
});
