//! Counting calls: by route and HTTP status, and under the names of etcd's gRPC metrics, which its dashboards read.
//!
//! Every handle is looked up once in a route's life. A call that ends without an answer (its client went away) is counted
//! as canceled.

use std::{
    sync::{Arc, OnceLock},
    time::Instant,
};

use hyper::StatusCode;
use prometheus::{Histogram, IntCounter, IntCounterVec};

use crate::{
    error::{ApiError, Code},
    metrics::Metrics,
};

/// The statuses this server answers with.
const STATUSES: [u16; 16] = [101, 200, 400, 401, 403, 404, 405, 409, 410, 421, 429, 499, 500, 501, 503, 504];

/// Counters of one route.
#[derive(Debug)]
pub(super) struct Meter {
    route: &'static str,
    requests: IntCounterVec,
    by_status: [OnceLock<IntCounter>; STATUSES.len()],
    rpc: Option<RpcMeter>,
}

/// Counters of the gRPC method a route stands for.
#[derive(Debug)]
struct RpcMeter {
    labels: [&'static str; 3],
    started: IntCounter,
    handled: IntCounterVec,
    by_code: [OnceLock<IntCounter>; Code::ALL.len()],
    succeeded: Histogram,
    failed: Histogram,
}

impl Meter {
    /// A meter of a route that is no RPC.
    pub(super) fn new(route: &'static str, metrics: &Metrics) -> Meter {
        Meter { route, requests: metrics.http_requests.clone(), by_status: Default::default(), rpc: None }
    }

    /// A meter of an RPC's route.
    pub(super) fn of_rpc(
        route: &'static str,
        kind: &'static str,
        service: &'static str,
        method: &'static str,
        metrics: &Metrics,
    ) -> Meter {
        let labels = [kind, service, method];
        let rpc = RpcMeter {
            labels,
            started: metrics.rpc_started.with_label_values(&labels),
            handled: metrics.rpc_handled.clone(),
            by_code: Default::default(),
            succeeded: metrics.request_duration.with_label_values(&[method, "true"]),
            failed: metrics.request_duration.with_label_values(&[method, "false"]),
        };
        Meter { rpc: Some(rpc), ..Meter::new(route, metrics) }
    }

    /// Counts an answer that is no RPC's.
    pub(super) fn answered(&self, status: StatusCode) {
        let status = status.as_u16();
        let resolve = || self.requests.with_label_values(&[self.route, status.to_string().as_str()]);
        match STATUSES.iter().position(|known| *known == status).and_then(|index| self.by_status.get(index)) {
            Some(counter) => counter.get_or_init(resolve).inc(),
            None => resolve().inc(),
        }
    }

    /// Counts a call's beginning; the value returned counts its end.
    pub(super) fn start(self: &Arc<Self>) -> Call {
        if let Some(rpc) = &self.rpc {
            rpc.started.inc();
        }
        Call { meter: Arc::clone(self), began: Instant::now(), code: Code::Canceled }
    }
}

/// A call in progress.
#[derive(Debug)]
pub(super) struct Call {
    meter: Arc<Meter>,
    began: Instant,
    code: Code,
}

impl Call {
    /// The path metrics name.
    pub(super) fn route(&self) -> &'static str {
        self.meter.route
    }

    /// Notes how the call ends. Without this it counts as canceled.
    pub(super) fn ends(&mut self, failure: Option<&ApiError>) {
        self.code = failure.map_or(Code::Ok, ApiError::code);
    }

    /// Counts the HTTP answer, and a unary call's duration.
    pub(super) fn answered(&self, status: StatusCode) {
        self.meter.answered(status);
    }

    /// Notes how long the call took. Not for streams: how long they live says nothing.
    pub(super) fn took(&self) {
        if let Some(rpc) = &self.meter.rpc {
            let histogram = if self.code == Code::Ok { &rpc.succeeded } else { &rpc.failed };
            histogram.observe(self.began.elapsed().as_secs_f64());
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let Some(rpc) = &self.meter.rpc else { return };
        let [kind, service, method] = rpc.labels;
        let resolve = || rpc.handled.with_label_values(&[kind, service, method, self.code.name()]);
        match rpc.by_code.get(usize::from(self.code.number())) {
            Some(counter) => counter.get_or_init(resolve).inc(),
            None => resolve().inc(),
        }
    }
}
