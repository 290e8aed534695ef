// One WebSocket with an inbox: every wait has a deadline, and a message nobody expected is not lost.
import WebSocket from 'ws';

export const endpoint = process.env.REVGATE_ENDPOINT;
const WAIT_MS_MAX = 15_000;

export const b64 = (data) => Buffer.from(data).toString('base64');
export const text = (data) => Buffer.from(data ?? '', 'base64').toString();

/** A call over plain HTTP, which must be answered with 200. */
export async function post(path, body) {
    const response = await fetch(endpoint + path, { method: 'POST', body: JSON.stringify(body) });
    const answer = await response.text();
    if (response.status !== 200) throw new Error(`${path}: ${response.status} ${answer}`);
    return JSON.parse(answer);
}

/** Puts a key and gives the revision of the put. */
export async function put(key, value = '') {
    return (await post('/v3/kv/put', { key: b64(key), value: b64(value) })).header.revision;
}

export class Socket {
    static async open(path = '/v3/watch', protocols = [], options = {}) {
        const socket = new Socket();
        socket.ws = new WebSocket(endpoint.replace(/^http/, 'ws') + path, protocols, options);
        socket.inbox = [];
        socket.closed = null;
        socket.wake = () => {};
        socket.ws.on('message', (data, isBinary) => {
            socket.inbox.push({ raw: data.toString(), isBinary });
            socket.wake();
        });
        socket.ws.on('close', (code, reason) => {
            socket.closed = { code, reason: reason.toString() };
            socket.wake();
        });
        await new Promise((resolve, reject) => {
            socket.ws.once('open', resolve);
            socket.ws.once('error', reject);
        });
        socket.ws.on('error', () => {});
        return socket;
    }

    send(value) {
        this.ws.send(JSON.stringify(value));
    }

    /** Waits until `found()` gives something. */
    async until(found, what) {
        const deadline = Date.now() + WAIT_MS_MAX;
        for (;;) {
            const value = found();
            if (value) return value;
            const left = deadline - Date.now();
            if (left <= 0) throw new Error(`not within ${WAIT_MS_MAX} ms: ${what}; closed: ${JSON.stringify(this.closed)}`);
            await new Promise((resolve) => {
                const timer = setTimeout(resolve, left);
                this.wake = () => {
                    clearTimeout(timer);
                    resolve();
                };
            });
        }
    }

    /** The next message as it came. */
    message() {
        return this.until(() => this.inbox.shift(), 'a message');
    }

    /** The next message as a value. */
    async next() {
        return JSON.parse((await this.message()).raw);
    }

    /** The `result` of the next message. */
    async result() {
        const value = await this.next();
        if (!value.result) throw new Error(`no result: ${JSON.stringify(value)}`);
        return value.result;
    }

    /** Creates a watch and gives the answer, which must be the next message. */
    async create(request) {
        this.send({ create_request: request });
        return this.result();
    }

    /** The next events: [watch id, type, key, value] of each. */
    async events(count) {
        const seen = [];
        while (seen.length < count) {
            const { watch_id: id = '0', events = [] } = await this.result();
            for (const { type = 'PUT', kv } of events) seen.push([id, type, text(kv.key), text(kv.value)]);
        }
        return seen;
    }

    /** How the socket was closed. */
    end() {
        return this.until(() => this.closed, 'the close');
    }

    async close(code, reason) {
        this.ws.close(code, reason);
        return this.end();
    }
}
