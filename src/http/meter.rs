//! Counting calls: by route, method and HTTP status, and under the names of etcd's gRPC metrics, which its dashboards read.
//!
//! Every handle is looked up once in a route's life. A call that ends without an answer (its client went away) is counted
//! as canceled. Labels are from fixed lists: what a client sends never becomes one.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use hyper::{Method as HttpMethod, StatusCode};
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge};

use crate::{
    error::{ApiError, Code},
    metrics::Metrics,
};

/// The statuses this server answers with.
const STATUSES: [u16; 17] = [101, 200, 307, 400, 401, 403, 404, 405, 409, 410, 421, 429, 499, 500, 501, 503, 504];
/// What of a status the time of an answer is told by.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
/// Methods that are told apart; the last is every other one.
const METHODS: [&str; 5] = ["POST", "GET", "OPTIONS", "CONNECT", "other"];

/// A request that has just come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// Index into [`METHODS`].
    method: usize,
    at: Instant,
}

impl Arrival {
    pub(super) fn of(method: &HttpMethod) -> Arrival {
        let known = METHODS.iter().position(|known| *known == method.as_str());
        Arrival { method: known.unwrap_or(METHODS.len() - 1), at: Instant::now() }
    }
}

/// Counters of one route.
#[derive(Debug)]
pub(super) struct Meter {
    route: &'static str,
    requests: IntCounterVec,
    durations: HistogramVec,
    by_status: [[OnceLock<IntCounter>; STATUSES.len()]; METHODS.len()],
    by_class: [[OnceLock<Histogram>; CLASSES.len()]; METHODS.len()],
    rpc: Option<RpcMeter>,
}

/// Counters of the gRPC method a route stands for.
#[derive(Debug)]
struct RpcMeter {
    labels: [&'static str; 3],
    started: IntCounter,
    handled: IntCounterVec,
    by_code: [OnceLock<IntCounter>; Code::ALL.len()],
    handling: Option<HistogramVec>,
    handled_in: OnceLock<Histogram>,
    succeeded: Histogram,
    failed: Histogram,
}

impl Meter {
    /// A meter of a route that is no RPC.
    pub(super) fn new(route: &'static str, metrics: &Metrics) -> Meter {
        Meter {
            route,
            requests: metrics.http_requests.clone(),
            durations: metrics.http_request_duration.clone(),
            by_status: Default::default(),
            by_class: Default::default(),
            rpc: None,
        }
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
            handling: metrics.rpc_handling.clone(),
            handled_in: OnceLock::new(),
            succeeded: metrics.request_duration.with_label_values(&[method, "true"]),
            failed: metrics.request_duration.with_label_values(&[method, "false"]),
        };
        Meter { rpc: Some(rpc), ..Meter::new(route, metrics) }
    }

    /// Counts a whole answer that is no RPC's, and the time it took.
    pub(super) fn answered(&self, arrival: &Arrival, status: StatusCode) {
        self.count(arrival, status);
        self.took(arrival, status, arrival.at.elapsed());
    }

    fn count(&self, arrival: &Arrival, status: StatusCode) {
        let method = METHODS[arrival.method];
        let resolve = || self.requests.with_label_values(&[self.route, method, status.as_str()]);
        match STATUSES.iter().position(|known| *known == status.as_u16()) {
            Some(index) => self.by_status[arrival.method][index].get_or_init(resolve).inc(),
            None => resolve().inc(),
        }
    }

    fn took(&self, arrival: &Arrival, status: StatusCode, took: Duration) {
        let class = usize::from(status.as_u16() / 100).clamp(1, CLASSES.len()) - 1;
        let resolve = || self.durations.with_label_values(&[self.route, METHODS[arrival.method], CLASSES[class]]);
        self.by_class[arrival.method][class].get_or_init(resolve).observe(took.as_secs_f64());
    }

    /// Counts a call's beginning; the value returned counts its end.
    pub(super) fn start(self: &Arc<Self>, arrival: Arrival) -> Call {
        if let Some(rpc) = &self.rpc {
            rpc.started.inc();
        }
        Call { meter: Arc::clone(self), arrival, status: StatusCode::OK, code: Code::Canceled, took: None }
    }
}

/// A call in progress.
#[derive(Debug)]
pub(super) struct Call {
    meter: Arc<Meter>,
    arrival: Arrival,
    status: StatusCode,
    code: Code,
    /// How long it took, once that is noted.
    took: Option<Duration>,
}

impl Call {
    /// When the request came.
    pub(super) fn began(&self) -> Instant {
        self.arrival.at
    }

    /// The path metrics name.
    pub(super) fn route(&self) -> &'static str {
        self.meter.route
    }

    /// Notes how the call ends. Without this it counts as canceled.
    pub(super) fn ends(&mut self, failure: Option<&ApiError>) {
        self.code = failure.map_or(Code::Ok, ApiError::code);
    }

    /// Counts the HTTP answer.
    pub(super) fn answered(&mut self, status: StatusCode) {
        self.status = status;
        self.meter.count(&self.arrival, status);
    }

    /// Notes how long the call took until all of its answer was handed to the connection. Not for streams: how long they
    /// live says nothing.
    pub(super) fn took(&mut self) {
        let took = self.arrival.at.elapsed();
        self.took = Some(took);
        self.meter.took(&self.arrival, self.status, took);
        if let Some(rpc) = &self.meter.rpc {
            let histogram = if self.code == Code::Ok { &rpc.succeeded } else { &rpc.failed };
            histogram.observe(took.as_secs_f64());
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
        if let Some(handling) = &rpc.handling {
            // Streams too, as with etcd: its rules look at unary calls only.
            let handled_in = rpc.handled_in.get_or_init(|| handling.with_label_values(&rpc.labels));
            let took = self.took.unwrap_or_else(|| self.arrival.at.elapsed());
            handled_in.observe(took.as_secs_f64());
        }
    }
}

/// Streams of one kind that are open.
#[derive(Clone, Debug)]
pub(super) struct OpenStreams(IntGauge);

/// A stream that is open until this is dropped.
#[derive(Debug)]
pub(super) struct OpenStream(IntGauge);

impl OpenStreams {
    /// `kind` is from a fixed list.
    pub(super) fn new(kind: &'static str, metrics: &Metrics) -> OpenStreams {
        OpenStreams(metrics.http_streams.with_label_values(&[kind]))
    }

    /// One is opened.
    pub(super) fn open(&self) -> OpenStream {
        self.0.inc();
        OpenStream(self.0.clone())
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}
