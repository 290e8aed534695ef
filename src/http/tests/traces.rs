//! Traces, as a collector gets them.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use axum::{Router, body::Bytes, http::StatusCode, routing::post};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::any_value::Value,
    trace::v1::{Span, span::SpanKind},
};
use parking_lot::Mutex;
use prost::Message as _;
use tokio::sync::Notify;

use super::{
    harness::{Member, MemberOptions},
    tls::{Authority, files},
};
use crate::{
    config::TracingConfig,
    http::{Tls, Tracing},
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// A collector.
#[derive(Clone, Default)]
struct Collector {
    taken: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
}

impl Collector {
    async fn listen(&self) -> SocketAddr {
        serve(self.router()).await
    }

    fn router(&self) -> Router {
        let taken = self.taken.clone();
        let take = async move |body: Bytes| {
            taken.lock().push(ExportTraceServiceRequest::decode(body).unwrap());
            StatusCode::OK
        };
        Router::new().route("/v1/traces", post(take))
    }

    /// All spans, with the name of the service they are of.
    fn spans(&self) -> Vec<(String, Span)> {
        let mut spans = Vec::new();
        for of_resource in self.taken.lock().iter().flat_map(|request| &request.resource_spans) {
            let attributes = &of_resource.resource.as_ref().unwrap().attributes;
            let name = attributes.iter().find(|attribute| attribute.key == "service.name").unwrap();
            let Some(Value::StringValue(name)) = name.value.clone().unwrap().value else { panic!("{name:?}") };
            let all = of_resource.scope_spans.iter().flat_map(|scope| scope.spans.clone());
            spans.extend(all.map(|span| (name.clone(), span)));
        }
        spans
    }
}

async fn serve(router: Router) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// A member that sends its traces to an address.
async fn member(collector: SocketAddr, samples_per_million: u32) -> Member {
    member_of(format!("http://{collector}/v1/traces"), None, samples_per_million).await
}

async fn member_of(endpoint: String, trusted_ca: Option<PathBuf>, samples_per_million: u32) -> Member {
    let config = TracingConfig { endpoint, trusted_ca, service_name: "kv".into(), samples_per_million };
    let tracing = Tracing::start(&config, 11).unwrap();
    Member::with(MemberOptions { tracing: Some(tracing), ..Default::default() }).await
}

async fn post_in_trace(member: &Member, flags: &str, path: &str, body: &str) -> u16 {
    let headers = format!("traceparent: 00-{TRACE}-{PARENT}-{flags}\r\n");
    member.connect().await.request("POST", path, &headers, body).await.status
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn number(span: &Span, name: &str) -> Option<i64> {
    let value = span.attributes.iter().find(|attribute| attribute.key == name)?.value.clone()?.value?;
    match value {
        Value::IntValue(number) => Some(number),
        other => panic!("{name}: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_s_span_belongs_to_its_client_s_trace_and_has_its_stages_below() {
    let collector = Collector::default();
    let member = member(collector.listen().await, 0).await;
    let body = r#"{"key":"Zm9v","value":"YmFy"}"#;
    assert_eq!(post_in_trace(&member, "01", "/v3/kv/put", body).await, 200);
    // Not sampled by its client, and in nobody's trace.
    assert_eq!(post_in_trace(&member, "00", "/v3/kv/put", body).await, 200);
    assert_eq!(member.post("/v3/kv/put", body).await.status, 200);
    member.stop().await;

    let spans = collector.spans();
    assert_eq!(spans.len(), 5, "{spans:?}");
    assert!(spans.iter().all(|(service, span)| service == "kv" && hex(&span.trace_id) == TRACE));
    let (_, server) = spans.iter().find(|(_, span)| span.kind == SpanKind::Server as i32).unwrap();
    assert_eq!((&server.name[..], hex(&server.parent_span_id)), ("POST /v3/kv/put", PARENT.to_owned()));
    assert_eq!(number(server, "http.response.status_code"), Some(200));
    assert_eq!(number(server, "http.request.body.size"), Some(body.len() as i64));
    assert_eq!((number(server, "revgate.key_bytes"), number(server, "revgate.value_bytes")), (Some(3), Some(3)));
    assert_eq!(number(server, "revgate.revision"), Some(2));
    let mut stages: Vec<&Span> =
        spans.iter().map(|(_, span)| span).filter(|span| span.parent_span_id == server.span_id).collect();
    stages.sort_by_key(|span| span.start_time_unix_nano);
    assert_eq!(stages.len(), 4);
    let mut at = server.start_time_unix_nano;
    for name in ["read", "parse", "execute", "respond"] {
        let span = stages.iter().find(|span| span.name == name).unwrap();
        assert_eq!(span.start_time_unix_nano, at, "{name}");
        at = span.end_time_unix_nano;
    }
    assert_eq!(server.end_time_unix_nano, at);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_without_a_trace_are_sampled_by_the_rate() {
    let collector = Collector::default();
    let member = member(collector.listen().await, 1_000_000).await;
    assert_eq!(member.post("/v3/kv/range", r#"{"key":"Zm9v"}"#).await.status, 200);
    assert_eq!(member.post("/v3/kv/range", "nonsense").await.status, 400);
    member.stop().await;
    let spans = collector.spans();
    let servers: Vec<&Span> =
        spans.iter().map(|(_, span)| span).filter(|span| span.kind == SpanKind::Server as i32).collect();
    let statuses: Vec<_> = servers.iter().map(|span| number(span, "http.response.status_code")).collect();
    assert_eq!(statuses, [Some(200), Some(400)]);
    assert!(servers.iter().all(|span| span.parent_span_id.is_empty()));
    assert_ne!(servers[0].trace_id, servers[1].trace_id);
    // What was not reached has no span.
    let of_refused = spans.iter().filter(|(_, span)| span.parent_span_id == servers[1].span_id);
    let mut stages: Vec<&str> = of_refused.map(|(_, span)| &span.name[..]).collect();
    stages.sort_unstable();
    assert_eq!(stages, ["parse", "read"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_is_spoken_to_by_tls_if_it_is_the_right_one() {
    let dir = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::new("ours"), Authority::new("other"));
    let (files, ours, others) = (files(dir.path()), dir.path().join("ca.pem"), dir.path().join("other.pem"));
    authority.sign("collector").write(&files);
    authority.write(&ours);
    other.write(&others);
    let tls = Arc::new(Tls::load(files).unwrap());
    for (trusted, spans) in [(ours, 5), (others, 0)] {
        let collector = Collector::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("https://localhost:{}/v1/traces", listener.local_addr().unwrap().port());
        let (tls, router) = (tls.clone(), collector.router());
        let listening = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                // Whoever does not trust it goes.
                let Ok((stream, _)) = tls.handshake(stream).await else { continue };
                let service = hyper_util::service::TowerToHyperService::new(router.clone());
                let connection = hyper::server::conn::http1::Builder::new();
                let _ = connection.serve_connection(hyper_util::rt::TokioIo::new(stream), service).await;
            }
        });
        let member = member_of(endpoint, Some(trusted), 1_000_000).await;
        assert_eq!(member.post("/v3/kv/range", r#"{"key":"Zm9v"}"#).await.status, 200);
        member.stop().await;
        listening.abort();
        assert_eq!(collector.spans().len(), spans);
    }
}

/// Nobody waits for a collector that takes connections and never answers, nor for one that is not there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_does_not_answer_holds_up_nobody() {
    let release = Arc::new(Notify::new());
    let held = release.clone();
    let hold = async move || {
        held.notified().await;
        StatusCode::OK
    };
    let silent = serve(Router::new().route("/v1/traces", post(hold))).await;
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for collector in [silent, gone] {
        let member = member(collector, 1_000_000).await;
        // Five spans each: more than the queue holds.
        let mut client = member.connect().await;
        for _ in 0..600 {
            let answer = client.request("POST", "/v3/kv/range", "", r#"{"key":"Zm9v"}"#).await;
            assert_eq!(answer.status, 200);
        }
        drop(client);
        // A bounded time: the test's own limit is far above it.
        tokio::time::timeout(Duration::from_secs(60), member.stop()).await.unwrap();
    }
    release.notify_waiters();
}
