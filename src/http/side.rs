//! The endpoints beside the API: versions, health, metrics, the OpenAPI document. GET only, as in etcd.

use bytes::Bytes;
use hyper::{HeaderMap, StatusCode, header::HeaderValue};

use super::{
    debug,
    front::Front,
    json::write,
    openapi, pipeline,
    reply::{self, Reply},
};
use crate::service::{Caller, Check};

const LIVE_CHECKS: [&str; 1] = ["serializable_read"];
const READY_CHECKS: [&str; 5] =
    ["data_corruption", "serializable_read", "linearizable_read", "non_learner", "disk_space"];

/// The path a side endpoint is counted under; `None`: there is none here.
pub(super) fn template(path: &str) -> Option<&'static str> {
    match path {
        "/version" => Some("/version"),
        "/health" => Some("/health"),
        "/metrics" => Some("/metrics"),
        debug::WATCHERS_PATH => Some(debug::WATCHERS_PATH),
        pipeline::PIPELINE_PATH => Some(pipeline::PIPELINE_PATH),
        "/openapi.json" => Some("/openapi.json"),
        _ if path == "/livez" || path.starts_with("/livez/") => Some("/livez"),
        _ if path == "/readyz" || path.starts_with("/readyz/") => Some("/readyz"),
        _ => None,
    }
}

/// Whether a path is served where metrics alone are.
pub(super) fn is_for_operators(path: &str) -> bool {
    template(path).is_some_and(|template| template != "/openapi.json")
}

/// Every template, for resolving meters.
pub(super) const TEMPLATES: [&str; 8] = [
    "/version",
    "/health",
    "/metrics",
    debug::WATCHERS_PATH,
    pipeline::PIPELINE_PATH,
    "/openapi.json",
    "/livez",
    "/readyz",
];

/// Answers a GET.
pub(super) async fn answer(front: &Front, path: &str, query: &str, headers: &HeaderMap, caller: &Caller) -> Reply {
    match template(path) {
        Some("/version") => version(front),
        Some("/health") => health(front, query).await,
        Some("/metrics") => metrics(front),
        Some(debug::WATCHERS_PATH) => debug::watchers(front, query, caller).await,
        Some(pipeline::PIPELINE_PATH) => pipeline::pipeline(front, query, headers, caller).await,
        Some("/openapi.json") => reply::whole(
            StatusCode::OK,
            HeaderValue::from_static("application/json"),
            Bytes::from_static(openapi::DOCUMENT.as_bytes()),
        ),
        Some("/livez") => checks(front, path, query, "/livez", &LIVE_CHECKS).await,
        Some("/readyz") => checks(front, path, query, "/readyz", &READY_CHECKS).await,
        _ => not_found(),
    }
}

/// What is nowhere.
pub(super) fn not_found() -> Reply {
    reply::text(StatusCode::NOT_FOUND, "404 page not found\n")
}

fn version(front: &Front) -> Reply {
    let versions = front.services.maintenance.versions();
    let mut body = Vec::new();
    let mut object = write::Object::begin(&mut body);
    object.string("etcdserver", &versions.server);
    object.string("etcdcluster", &versions.cluster);
    object.string("storage", &versions.storage);
    object.end();
    reply::json(StatusCode::OK, body)
}

async fn health(front: &Front, query: &str) -> Reply {
    let serializable = values(query, "serializable").iter().any(|value| value == "true");
    let reason = front.services.health.health(&values(query, "exclude"), serializable).await.err();
    let healthy = if reason.is_none() { "true" } else { "false" };
    let status = if reason.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut body = Vec::new();
    let mut object = write::Object::begin(&mut body);
    object.string("health", healthy);
    write::string(object.name("reason"), reason.as_deref().unwrap_or_default());
    object.end();
    body.push(b'\n');
    reply::text(status, body)
}

fn metrics(front: &Front) -> Reply {
    match front.metrics.render() {
        Ok(text) => {
            let content_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
            reply::whole(StatusCode::OK, content_type, Bytes::from(text))
        }
        Err(error) => reply::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

async fn checks(front: &Front, path: &str, query: &str, root: &str, known: &[&str]) -> Reply {
    let only = path.strip_prefix(root).and_then(|rest| rest.strip_prefix('/'));
    let mut excluded = values(query, "exclude");
    if let Some(only) = only {
        if !known.contains(&only) {
            return not_found();
        }
        excluded = known.iter().filter(|name| **name != only).map(|name| (*name).to_owned()).collect();
    }
    let checks = match root {
        "/livez" => front.services.health.live_checks(&excluded).await,
        _ => front.services.health.ready_checks(&excluded, only.is_some()).await,
    };
    let verbose = query.split('&').any(|pair| pair == "verbose" || pair.starts_with("verbose="));
    report(&checks, verbose)
}

fn report(checks: &[Check], verbose: bool) -> Reply {
    let healthy = checks.iter().all(|check| check.failure.is_none());
    let mut text = String::new();
    if verbose || !healthy {
        for check in checks {
            text += &match &check.failure {
                None => format!("[+]{} ok\n", check.name),
                Some(failure) => format!("[-]{} failed: {failure}\n", check.name),
            };
        }
    }
    if !healthy {
        text.push('\n');
        return reply::text(StatusCode::SERVICE_UNAVAILABLE, text);
    }
    text += "ok\n";
    reply::text(StatusCode::OK, text)
}

/// The values of a query's parameter. Names and values here need no percent-decoding.
pub(super) fn values(query: &str, name: &str) -> Vec<String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use http_body_util::BodyExt as _;

    use super::*;

    async fn body_of(reply: Reply) -> (u16, String) {
        let status = reply.status().as_u16();
        let bytes = reply.into_body().collect().await.expect("an answer's body cannot fail").to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn checks_are_reported_as_etcd_does() {
        let good = Check { name: "serializable_read", failure: None };
        let bad = Check { name: "linearizable_read", failure: Some("etcdserver: no leader".into()) };
        assert_eq!(body_of(report(std::slice::from_ref(&good), false)).await, (200, "ok\n".into()));
        assert_eq!(
            body_of(report(std::slice::from_ref(&good), true)).await,
            (200, "[+]serializable_read ok\nok\n".into())
        );
        let (status, text) = body_of(report(&[good, bad], false)).await;
        assert_eq!(status, 503);
        assert_eq!(text, "[+]serializable_read ok\n[-]linearizable_read failed: etcdserver: no leader\n\n");
    }

    #[test]
    fn queries_may_repeat_a_name() {
        assert_eq!(values("exclude=NOSPACE&verbose&exclude=CORRUPT", "exclude"), ["NOSPACE", "CORRUPT"]);
        assert!(values("", "exclude").is_empty());
    }

    #[test]
    fn templates_name_what_is_there() {
        assert_eq!(template("/livez/serializable_read"), Some("/livez"));
        assert_eq!(template("/livezz"), None);
        assert!(TEMPLATES.iter().all(|path| template(path) == Some(path)));
    }
}
