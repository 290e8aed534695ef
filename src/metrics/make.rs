//! Metrics, made and registered in one step.

use prometheus::{
    DEFAULT_BUCKETS, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, core::Collector, exponential_buckets,
};

pub(super) fn register(registry: &Registry, collector: impl Collector + 'static) {
    registry.register(Box::new(collector)).expect("each metric is registered once, in a fresh registry");
}

pub(super) fn gauge(registry: &Registry, name: &str, help: &str) -> IntGauge {
    let metric = IntGauge::new(name, help).expect("the name is a valid constant");
    register(registry, metric.clone());
    metric
}

pub(super) fn gauge_vec(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    let metric = IntGaugeVec::new(Opts::new(name, help), labels).expect("the name is a valid constant");
    register(registry, metric.clone());
    metric
}

pub(super) fn float_gauge(registry: &Registry, name: &str, help: &str) -> Gauge {
    let metric = Gauge::new(name, help).expect("the name is a valid constant");
    register(registry, metric.clone());
    metric
}

pub(super) fn float_gauge_vec(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
    let metric = GaugeVec::new(Opts::new(name, help), labels).expect("the name is a valid constant");
    register(registry, metric.clone());
    metric
}

pub(super) fn counter(registry: &Registry, name: &str, help: &str) -> IntCounter {
    let metric = IntCounter::new(name, help).expect("the name is a valid constant");
    register(registry, metric.clone());
    metric
}

pub(super) fn counter_vec(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    let metric = IntCounterVec::new(Opts::new(name, help), labels).expect("the name is a valid constant");
    register(registry, metric.clone());
    metric
}

/// Buckets are (start, count), each twice the one before, as all of etcd's are.
pub(super) fn histogram(registry: &Registry, name: &str, help: &str, buckets: (f64, usize)) -> Histogram {
    let metric = Histogram::with_opts(histogram_opts(name, help, buckets)).expect("the name is a valid constant");
    register(registry, metric.clone());
    metric
}

pub(super) fn histogram_vec(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
    buckets: (f64, usize),
) -> HistogramVec {
    let metric = HistogramVec::new(histogram_opts(name, help, buckets), labels).expect("the name is a valid constant");
    register(registry, metric.clone());
    metric
}

fn histogram_opts(name: &str, help: &str, (start, count): (f64, usize)) -> HistogramOpts {
    let buckets = exponential_buckets(start, 2.0, count).expect("start is positive and count is not zero");
    HistogramOpts::new(name, help).buckets(buckets)
}

/// The one histogram with the buckets of Prometheus' own clients, as etcd's gRPC library has it.
pub(super) fn rpc_handling(registry: &Registry, labels: &[&str]) -> HistogramVec {
    let opts = HistogramOpts::new("grpc_server_handling_seconds", "Time from a call's beginning to its end.");
    let metric = HistogramVec::new(opts.buckets(DEFAULT_BUCKETS.to_vec()), labels);
    let metric = metric.expect("the name is a valid constant");
    register(registry, metric.clone());
    metric
}
