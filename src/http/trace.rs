//! Traces: a span for a call and one for each of its stages, handed to an OpenTelemetry collector.
//!
//! Spans are made once a call has ended, from what was noted of it; a call that is not sampled costs a look at its headers,
//! and without a collector not even that. They wait in a queue of bounded length for a thread of their own: a collector that
//! is slow or gone costs spans, never a request. Of what clients sent, spans hold sizes only.

mod export;

use std::time::{Duration, Instant, SystemTime};

use hyper::HeaderMap;
use opentelemetry::{
    Context, KeyValue,
    propagation::TextMapPropagator as _,
    trace::{Span as _, SpanBuilder, SpanKind, Status, TraceContextExt as _, Tracer as _, TracerProvider as _},
};
use opentelemetry_http::HeaderExtractor;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    propagation::TraceContextPropagator,
    trace::{BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider},
};
use thiserror::Error;
use tokio::task::spawn_blocking;

use self::export::Collector;
use super::client_tls::ClientTls;
use crate::config::TracingConfig;

/// Spans that wait for the collector; one more is dropped.
const QUEUE_SPANS_MAX: usize = 2048;
/// Spans of one message to the collector.
const BATCH_SPANS_MAX: usize = 512;
/// Longest time a span waits for others before they are sent.
const BATCH_DELAY_MAX: Duration = Duration::from_secs(5);
/// Longest time one message to the collector may take.
const EXPORT_MAX: Duration = Duration::from_secs(10);
/// Longest time a member that stops waits for its last spans to be taken.
const STOP_MAX: Duration = Duration::from_secs(3);
/// What the sampling rate is a share of.
const SAMPLES_OF: f64 = 1_000_000.0;

/// Why there are no traces.
#[derive(Debug, Error)]
#[error("traces cannot be sent to {endpoint}: {what}")]
pub struct TracingError {
    endpoint: String,
    what: String,
}

/// Sends traces to a collector.
#[derive(Clone, Debug)]
pub struct Tracing {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    propagator: TraceContextPropagator,
    /// Whether calls without a parent are sampled, some of them at least.
    begins_traces: bool,
}

impl Tracing {
    /// Makes ready; the collector need not be there. To be called within a tokio runtime.
    ///
    /// # Errors
    /// An endpoint that is no URL, or certificates that cannot be read.
    pub fn start(config: &TracingConfig, member_id: u64) -> Result<Tracing, TracingError> {
        let failed = |what: String| TracingError { endpoint: config.endpoint.clone(), what };
        let tls = config.trusted_ca.as_ref().map(|ca| ClientTls::load(ca, None)).transpose();
        let collector = Collector::new(tls.map_err(|error| failed(error.to_string()))?, EXPORT_MAX);
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(collector)
            .with_endpoint(&config.endpoint)
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(EXPORT_MAX)
            .build()
            .map_err(|error| failed(error.to_string()))?;
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE_SPANS_MAX)
            .with_max_export_batch_size(BATCH_SPANS_MAX)
            .with_scheduled_delay(BATCH_DELAY_MAX)
            .build();
        let share = f64::from(config.samples_per_million) / SAMPLES_OF;
        let resource = Resource::builder_empty()
            .with_service_name(config.service_name.clone())
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .with_attribute(KeyValue::new("service.instance.id", format!("{member_id:x}")))
            .build();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(BatchSpanProcessor::builder(exporter).with_batch_config(batches).build())
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(share))))
            .with_resource(resource)
            .build();
        let tracer = provider.tracer("revgate");
        let propagator = TraceContextPropagator::new();
        Ok(Tracing { provider, tracer, propagator, begins_traces: config.samples_per_million > 0 })
    }

    /// The trace a request belongs to, if it is to be told: one that its client began and samples, or one of our own.
    pub(super) fn begin(&self, headers: &HeaderMap) -> Option<Trace> {
        let parent = self.propagator.extract_with_context(&Context::new(), &HeaderExtractor(headers));
        let is_told = match parent.has_active_span() {
            true => parent.span().span_context().is_sampled(),
            false => self.begins_traces,
        };
        is_told.then(|| Trace { parent, tracer: self.tracer.clone() })
    }

    /// Sends what waits, for a bounded time.
    pub(super) async fn stop(&self) {
        let provider = self.provider.clone();
        let stopped = spawn_blocking(move || provider.shutdown_with_timeout(STOP_MAX)).await;
        if let Ok(Err(error)) = stopped {
            tracing::warn!(%error, "the last traces were not taken by the collector");
        }
    }
}

/// The trace a call belongs to.
#[derive(Debug)]
pub(super) struct Trace {
    parent: Context,
    tracer: SdkTracer,
}

/// A call that has ended, as its span tells it.
#[derive(Debug)]
pub(super) struct Ended<'a> {
    pub(super) route: &'static str,
    /// HTTP status.
    pub(super) status: u16,
    /// gRPC's name of how it ended.
    pub(super) code: &'static str,
    pub(super) began: Instant,
    pub(super) ended: Instant,
    /// Names and times of the stages that were reached, one behind the other.
    pub(super) stages: &'a [(&'static str, Option<Duration>)],
    /// Names of what else is known.
    pub(super) numbers: &'a [(&'static str, Option<i64>)],
}

impl Trace {
    /// Tells of a call that has just ended.
    pub(super) fn tell(&self, ended: &Ended<'_>) {
        let now = SystemTime::now();
        let time = |at: Instant| now.checked_sub(ended.ended.saturating_duration_since(at)).unwrap_or(now);
        let mut attributes = vec![
            KeyValue::new("http.request.method", "POST"),
            KeyValue::new("http.route", ended.route),
            KeyValue::new("http.response.status_code", i64::from(ended.status)),
            KeyValue::new("revgate.code", ended.code),
        ];
        let known = ended.numbers.iter().filter_map(|(name, number)| Some(KeyValue::new(*name, (*number)?)));
        attributes.extend(known);
        let builder = SpanBuilder::from_name(format!("POST {}", ended.route))
            .with_kind(SpanKind::Server)
            .with_start_time(time(ended.began))
            .with_attributes(attributes);
        let mut span = self.tracer.build_with_context(builder, &self.parent);
        if span.is_recording() {
            if ended.status >= 500 {
                span.set_status(Status::error(ended.code));
            }
            self.tell_stages(ended, &Context::new().with_remote_span_context(span.span_context().clone()), time);
        }
        span.end_with_timestamp(now);
    }

    fn tell_stages(&self, ended: &Ended<'_>, parent: &Context, time: impl Fn(Instant) -> SystemTime) {
        let mut begin = ended.began;
        for (name, took) in ended.stages {
            let Some(took) = took else { return };
            let builder = SpanBuilder::from_name(*name).with_kind(SpanKind::Internal).with_start_time(time(begin));
            begin += *took;
            self.tracer.build_with_context(builder, parent).end_with_timestamp(time(begin));
        }
    }
}
