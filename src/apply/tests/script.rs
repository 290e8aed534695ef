//! A small language for txns, so that tests are data.
//!
//! `compares ? operations : operations`, compares joined by `&`, operations by `;`. A compare is
//! `ver|create|mod|val|lease key[..end] =|!=|>|< operand` (`_` as operand: none is set), an operation `put key value`,
//! `keep-value key`, `keep-lease key value`, `put-leased key lease`, `get key[..end][@revision]`, `del key[..end]`, or a
//! txn in parentheses.

use bytes::Bytes;

use crate::proto::etcdserverpb::{
    self as pb, RequestOp, TxnRequest, TxnResponse,
    compare::{CompareResult, CompareTarget, TargetUnion},
    request_op::Request,
    response_op::Response,
};

pub(super) fn parse(text: &str) -> TxnRequest {
    let mut spaced = text.to_owned();
    for separator in ["(", ")", ";", "?", " : ", "&"] {
        spaced = spaced.replace(separator, &format!(" {separator} "));
    }
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut tokens = Tokens { rest: &tokens };
    let txn = tokens.txn();
    assert!(tokens.rest.is_empty(), "left over in {text:?}: {:?}", tokens.rest);
    txn
}

struct Tokens<'a> {
    rest: &'a [&'a str],
}

impl<'a> Tokens<'a> {
    fn next(&mut self) -> &'a str {
        let (first, rest) = self.rest.split_first().expect("the script goes on");
        self.rest = rest;
        first
    }

    fn skip(&mut self, token: &str) -> bool {
        let there = self.rest.first() == Some(&token);
        if there {
            self.rest = &self.rest[1..];
        }
        there
    }

    fn txn(&mut self) -> TxnRequest {
        let mut compare = Vec::new();
        while !self.skip("?") {
            compare.push(self.compare());
            self.skip("&");
        }
        let success = self.operations();
        assert!(self.skip(":"), "a txn has a second branch");
        TxnRequest { compare, success, failure: self.operations() }
    }

    fn compare(&mut self) -> pb::Compare {
        let target = self.next();
        let (key, range_end) = keys(self.next());
        let result = match self.next() {
            "=" => CompareResult::Equal,
            "!=" => CompareResult::NotEqual,
            ">" => CompareResult::Greater,
            "<" => CompareResult::Less,
            other => panic!("no such comparison: {other}"),
        };
        let operand = self.next();
        let number = || operand.parse().unwrap();
        let (target, union): (_, Box<dyn Fn() -> TargetUnion>) = match target {
            "ver" => (CompareTarget::Version, Box::new(|| TargetUnion::Version(number()))),
            "create" => (CompareTarget::Create, Box::new(|| TargetUnion::CreateRevision(number()))),
            "mod" => (CompareTarget::Mod, Box::new(|| TargetUnion::ModRevision(number()))),
            "lease" => (CompareTarget::Lease, Box::new(|| TargetUnion::Lease(number()))),
            "val" => (CompareTarget::Value, Box::new(|| TargetUnion::Value(operand.to_owned().into()))),
            other => panic!("no such target: {other}"),
        };
        pb::Compare {
            result: result as i32,
            target: target as i32,
            key,
            range_end,
            target_union: (operand != "_").then(union),
        }
    }

    fn operations(&mut self) -> Vec<RequestOp> {
        let mut operations = Vec::new();
        while !matches!(self.rest.first(), None | Some(&":" | &")")) {
            operations.push(RequestOp { request: Some(self.operation()) });
            self.skip(";");
        }
        operations
    }

    fn operation(&mut self) -> Request {
        let put = |put: pb::PutRequest| Request::RequestPut(put);
        match self.next() {
            "(" => {
                let nested = self.txn();
                assert!(self.skip(")"), "a nested txn is closed");
                Request::RequestTxn(nested)
            }
            "put" => put(pb::PutRequest { key: text(self.next()), value: text(self.next()), ..Default::default() }),
            "keep-value" => put(pb::PutRequest { key: text(self.next()), ignore_value: true, ..Default::default() }),
            "keep-lease" => put(pb::PutRequest {
                key: text(self.next()),
                value: text(self.next()),
                ignore_lease: true,
                ..Default::default()
            }),
            "put-leased" => put(pb::PutRequest {
                key: text(self.next()),
                lease: self.next().parse().unwrap(),
                ..Default::default()
            }),
            "get" => {
                let (which, revision) = match self.next().split_once('@') {
                    Some((which, revision)) => (which, revision.parse().unwrap()),
                    None => unreachable!("a get says at which revision, 0 for now"),
                };
                let (key, range_end) = keys(which);
                Request::RequestRange(pb::RangeRequest { key, range_end, revision, ..Default::default() })
            }
            "del" => {
                let (key, range_end) = keys(self.next());
                Request::RequestDeleteRange(pb::DeleteRangeRequest { key, range_end, prev_kv: false })
            }
            other => panic!("no such operation: {other}"),
        }
    }
}

fn text(token: &str) -> Bytes {
    token.to_owned().into()
}

fn keys(token: &str) -> (Bytes, Bytes) {
    match token.split_once("..") {
        Some((key, end)) => (text(key), text(end)),
        None => (text(token), Bytes::new()),
    }
}

/// An answer as text: `T` or `F` for the branch, then each operation's answer with the revision of its header.
pub(super) fn render(response: &TxnResponse) -> String {
    let answers: Vec<String> = response.responses.iter().map(|op| render_op(op.response.as_ref().unwrap())).collect();
    format!("{}({})", if response.succeeded { 'T' } else { 'F' }, answers.join(" "))
}

fn render_op(response: &Response) -> String {
    let revision = |header: &Option<pb::ResponseHeader>| header.as_ref().unwrap().revision;
    match response {
        Response::ResponsePut(put) => format!("put@{}", revision(&put.header)),
        Response::ResponseDeleteRange(delete) => format!("del@{}:{}", revision(&delete.header), delete.deleted),
        Response::ResponseRange(range) => {
            let pairs: Vec<String> = range
                .kvs
                .iter()
                .map(|kv| format!("{}={}", String::from_utf8_lossy(&kv.key), String::from_utf8_lossy(&kv.value)))
                .collect();
            format!("get@{}[{}]", revision(&range.header), pairs.join(","))
        }
        Response::ResponseTxn(txn) => {
            assert_eq!(revision(&txn.header), 0, "a nested txn's header is empty");
            render(txn)
        }
    }
}
