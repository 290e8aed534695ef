//! What could be had at best on this machine: an axum route that parses the body and answers a constant, served by a
//! process of its own so that client and server share the processors as always, and `fdatasync` in a loop.

use std::{
    fs::File,
    io::{Seek, Write},
    path::Path,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Bytes,
    http::{HeaderValue, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Deserialize;

/// About what a batch of the log takes.
const APPEND_BYTES: usize = 2048;
/// What is written full of zeros before, where room is prepared; at its end it begins anew.
const PREPARED_BYTES: usize = 64 << 20;

/// Any body that is measured, as far as it concerns a route that does nothing. Text is borrowed where it lies.
#[derive(Deserialize)]
#[allow(dead_code, reason = "it is parsed, which is what takes time")]
struct Body<'a> {
    #[serde(borrow)]
    key: &'a str,
    #[serde(borrow, default)]
    value: &'a str,
    #[serde(default)]
    serializable: bool,
}

/// Serves until the process is ended; says where first.
pub(crate) fn serve() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let header = r#"{"cluster_id":"14841639068965178418","member_id":"10276657743932975437","revision":"123456","raft_term":"2"}"#;
        let put = format!(r#"{{"header":{header}}}"#);
        let value = base64_simd::STANDARD.encode_to_string([b'v'; 256]);
        let pair = format!(r#"{{"key":"YmVuY2gvMDAwMQ==","create_revision":"2","mod_revision":"3","version":"4","value":"{value}"}}"#);
        let range = format!(r#"{{"header":{header},"kvs":[{pair}],"count":"1"}}"#);
        let constant = |answer: String| {
            let answer = Bytes::from(answer);
            move |body: Bytes| async move { parsed(&body, answer) }
        };
        let router = Router::new()
            .route("/health", get(|| async { r#"{"health":"true"}"# }))
            .route("/v3/kv/put", post(constant(put)))
            .route("/v3/kv/range", post(constant(range)));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("serves at http://{}", listener.local_addr().unwrap());
        let listener = axum::serve::ListenerExt::tap_io(listener, |stream| stream.set_nodelay(true).unwrap());
        axum::serve(listener, router).await.unwrap();
    });
}

fn parsed(body: &[u8], answer: Bytes) -> Response {
    match serde_json::from_slice::<Body<'_>>(body) {
        Ok(_) => ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], answer).into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}

/// Appends, each made durable, for a time: how many a second. `prepared`: zeros were written there before, as
/// the log does.
pub(crate) fn syncs_per_second(dir: &Path, duration: Duration, prepared: bool) -> f64 {
    let path = dir.join("sync-probe");
    let mut file = File::create(&path).unwrap();
    if prepared {
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, PREPARED_BYTES as u64).unwrap();
        file.write_all(&vec![0; PREPARED_BYTES]).unwrap();
        file.sync_all().unwrap();
        file.rewind().unwrap();
    }
    let (started, mut syncs) = (Instant::now(), 0_u64);
    while started.elapsed() < duration {
        file.write_all(&[1; APPEND_BYTES]).unwrap();
        file.sync_data().unwrap();
        syncs += 1;
        if prepared && syncs % (PREPARED_BYTES / APPEND_BYTES) as u64 == 0 {
            file.rewind().unwrap();
        }
    }
    let per_second = syncs as f64 / started.elapsed().as_secs_f64();
    std::fs::remove_file(&path).unwrap();
    per_second
}
