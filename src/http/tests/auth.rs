//! Every route with authentication on, asked without a token and with a bad one.

use super::{
    super::routes::{Method, ROUTES},
    harness::{Member, header},
};

pub(super) async fn with_authentication() -> Member {
    let member = Member::start().await;
    for (path, body) in [
        ("/v3/auth/user/add", r#"{"name":"root","password":"sesame"}"#),
        ("/v3/auth/user/grant", r#"{"user":"root","role":"root"}"#),
        ("/v3/lease/grant", r#"{"TTL":600,"ID":77}"#),
        ("/v3/auth/enable", "{}"),
    ] {
        assert_eq!(member.post(path, body).await.status, 200, "{path}");
    }
    member
}

/// A body that is refused for nothing but its sender.
fn sound_body(method: Method) -> &'static str {
    match method {
        Method::Range | Method::Put | Method::DeleteRange | Method::Unlock => r#"{"key":"Zm9v"}"#,
        Method::Lock | Method::Campaign | Method::Leader | Method::Observe => r#"{"name":"Zm9v"}"#,
        Method::Proclaim | Method::Resign => r#"{"leader":{"name":"Zm9v","key":"Zm9vLzE=","rev":"2","lease":"1"}}"#,
        Method::Watch => r#"{"create_request":{"key":"Zm9v"}}"#,
        Method::LeaseRevoke | Method::LeaseKeepAlive | Method::LeaseTimeToLive => r#"{"ID":"77"}"#,
        Method::LeaseGrant => r#"{"TTL":60}"#,
        _ => "{}",
    }
}

/// CVE-2026-33413: some endpoints did not ask who is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cve_2026_33413_every_route_asks_who_is_there() {
    let member = with_authentication().await;
    for route in ROUTES {
        let open = matches!(route.method, Method::AuthStatus | Method::Authenticate);
        for path in route.paths {
            let body = sound_body(route.method);
            if route.method == Method::Watch {
                let line = first_line(&member, path, "", body).await;
                assert!(line.contains(r#""watch_id":"-1","created":true,"canceled":true"#), "{line}");
                let reason = "rpc error: code = InvalidArgument desc = etcdserver: user name is empty";
                assert!(line.contains(reason), "{line}");
                let line = first_line(&member, path, "Authorization: bad.1\r\n", body).await;
                let reason = "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token";
                assert!(line.contains(reason), "{line}");
                continue;
            }
            let answer = member.post(path, body).await;
            let refused = answer.status >= 400 && answer.body.contains("etcdserver: user name is empty");
            assert_eq!(refused, !open, "{path}: {answer:?}");

            let answer = member.connect().await.request("POST", path, "Authorization: bad.1\r\n", body).await;
            // Whoever asks for a token need not have one.
            let refused = answer.status == 401 && answer.body.contains("etcdserver: invalid auth token");
            assert_eq!(refused, route.method != Method::Authenticate, "{path}: {answer:?}");
            if refused {
                assert_eq!(header(&answer.head, "www-authenticate"), Some("etcdserver: invalid auth token"), "{path}");
            }
        }
    }
    member.stop().await;
}

async fn first_line(member: &Member, path: &str, headers: &str, body: &str) -> String {
    let mut client = member.connect().await;
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{headers}\r\n{body}");
    client.send(head.as_bytes()).await;
    client.head().await;
    client.chunk().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_clients_authenticate_at_once_and_each_gets_a_token_of_its_own() {
    let member = with_authentication().await;
    let asking = (0..50).map(|_| member.post("/v3/auth/authenticate", r#"{"name":"root","password":"sesame"}"#));
    let answers = futures_util::future::join_all(asking).await;
    let token = |body: &str| body.split(r#""token":""#).nth(1).unwrap().split('"').next().unwrap().to_owned();
    let tokens: std::collections::HashSet<String> = answers.iter().map(|answer| token(&answer.body)).collect();
    assert_eq!(tokens.len(), 50);
    for token in tokens {
        let (letters, index) = token.split_once('.').unwrap();
        assert!(letters.len() == 16 && index.parse::<u64>().is_ok(), "{token}");
        for value in [token.clone(), format!("Bearer {token}")] {
            let head = format!("Authorization: {value}\r\n");
            let answer = member.connect().await.request("POST", "/v3/kv/range", &head, r#"{"key":"Zm9v"}"#).await;
            assert_eq!(answer.status, 200, "{answer:?}");
        }
    }
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_and_the_pipeline_are_told_to_root_alone() {
    let member = with_authentication().await;
    let headers = format!("Authorization: {}\r\n", token_of(&member, r#"{"name":"root","password":"sesame"}"#).await);
    let ann = r#"{"name":"ann","password":"secret"}"#;
    let answer = member.connect().await.request("POST", "/v3/auth/user/add", &headers, ann).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    for path in ["/debug/watchers", "/debug/pipeline"] {
        let answer = member.get(path).await;
        assert!(answer.body.contains("etcdserver: user name is empty"), "{answer:?}");
    }
    for (user, status) in
        [(r#"{"name":"ann","password":"secret"}"#, 403), (r#"{"name":"root","password":"sesame"}"#, 200)]
    {
        let headers = format!("Authorization: {}\r\n", token_of(&member, user).await);
        for path in ["/debug/watchers", "/debug/pipeline"] {
            let answer = member.connect().await.request("GET", path, &headers, "").await;
            assert_eq!(answer.status, status, "{user}: {answer:?}");
        }
    }
    member.stop().await;
}

async fn token_of(member: &Member, user: &str) -> String {
    let answer = member.post("/v3/auth/authenticate", user).await;
    let answer: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    answer["token"].as_str().unwrap().to_owned()
}
