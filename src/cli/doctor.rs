//! `revgate doctor`: asks members what is wrong with them.
//!
//! What is wrong is the member's to say; here is only found out whether it can be asked, and whether it is ready.

use std::process::ExitCode;

use clap::Args;
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    client::{Client, ClientError, ClientFlags, refusal},
    output::{self, EXIT_FAILED},
};

/// Exit code if a member could not be asked.
const EXIT_UNREACHABLE: u8 = 2;

/// Flags of `revgate doctor`.
#[derive(Args, Clone, Debug)]
pub(super) struct DoctorFlags {
    #[command(flatten)]
    client: ClientFlags,

    /// Several members to ask, separated by commas, instead of --endpoint.
    #[arg(long, env = "REVGATE_ENDPOINTS", value_name = "URLS", value_delimiter = ',')]
    endpoints: Vec<String>,

    /// Print JSON: of each member its findings and the whole report from which they follow.
    #[arg(long)]
    json: bool,
}

/// Something that is wrong, as the member tells it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
struct Finding {
    severity: String,
    code: String,
    sentence: String,
    evidence: Vec<String>,
    advice: String,
}

/// What was found out about one member.
#[derive(Debug)]
struct Examined {
    endpoint: String,
    verdict: String,
    findings: Vec<Finding>,
    /// What the member told; none if it could not be asked.
    report: Option<Value>,
}

pub(super) fn run(flags: &DoctorFlags) -> ExitCode {
    let endpoints =
        if flags.endpoints.is_empty() { vec![flags.client.endpoint().to_owned()] } else { flags.endpoints.clone() };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return output::failed(error, EXIT_UNREACHABLE),
    };
    let mut examined = Vec::new();
    for endpoint in &endpoints {
        match runtime.block_on(examine(&flags.client.at(endpoint), endpoint)) {
            Err(error) => examined.push(unreachable(endpoint, &error)),
            Ok(found) => examined.push(found),
        }
    }
    if flags.json {
        output::print_json(&json!({ "members": examined.iter().map(as_json).collect::<Vec<_>>() }));
    } else {
        examined.iter().for_each(|examined| output::print(&as_text(examined)));
    }
    ExitCode::from(status(&examined))
}

/// What the worst of them makes of the exit code.
fn status(examined: &[Examined]) -> u8 {
    let of_one = |examined: &Examined| match (&examined.report, examined.findings.len()) {
        (None, _) => EXIT_UNREACHABLE,
        (Some(_), 0) => 0,
        (Some(_), _) => EXIT_FAILED,
    };
    examined.iter().map(of_one).max().unwrap_or(0)
}

async fn examine(flags: &ClientFlags, endpoint: &str) -> Result<Examined, ClientError> {
    let client = Client::new(flags).await?;
    let (ready, checks) = client.get("/readyz?verbose").await?;
    let (status, body) = client.get("/debug/pipeline").await?;
    if status != StatusCode::OK {
        return Err(refusal(status, &body));
    }
    let report: Value = serde_json::from_slice(&body).map_err(|error| ClientError::Answer(error.to_string()))?;
    let told = |what: &str| report.get(what).cloned().unwrap_or_default();
    let mut findings: Vec<Finding> =
        serde_json::from_value(told("findings")).map_err(|error| ClientError::Answer(error.to_string()))?;
    let mut verdict = told("verdict").as_str().unwrap_or_default().to_owned();
    let not_ready = not_ready(&String::from_utf8_lossy(&checks));
    // Where room is all that lacks, the member has said so, and load balancers may well be told to take no notice.
    let lacks_room = not_ready.evidence.iter().all(|check| check.starts_with("[-]disk_space"));
    if ready != StatusCode::OK && !(lacks_room && findings.iter().any(|finding| finding.code == "disk_full")) {
        if findings.is_empty() {
            verdict.clone_from(&not_ready.sentence);
        }
        findings.push(not_ready);
    }
    Ok(Examined { endpoint: endpoint.to_owned(), verdict, findings, report: Some(report) })
}

fn not_ready(checks: &str) -> Finding {
    Finding {
        severity: "critical".into(),
        code: "not_ready".into(),
        sentence: "The member is not ready: a load balancer sends it nothing.".into(),
        evidence: checks.lines().filter(|line| line.starts_with("[-]")).map(str::to_owned).collect(),
        advice: "See which check of /readyz fails; it says why.".into(),
    }
}

fn unreachable(endpoint: &str, error: &ClientError) -> Examined {
    let (code, sentence, advice) = match error {
        ClientError::Refused { status: 404, .. } => (
            "no_report",
            "The member tells nothing about itself.",
            "See whether it is a revgate, and as new as this command; and whether --endpoint is where clients connect.",
        ),
        ClientError::Refused { status: 400 | 401 | 403, .. } => (
            "refused",
            "The member does not tell this user about itself.",
            "With authentication on, give --user a user with the role root.",
        ),
        ClientError::Refused { .. } => (
            "no_answer",
            "The member is there and cannot answer: writes may be stuck, and a login is one.",
            "Ask a port of --listen-metrics-urls without --user: it needs no login. Else see what the member's log says last.",
        ),
        ClientError::Flags(_) => (
            "wrong_address",
            "The member cannot be asked this way.",
            "See the address, the certificates and the user given.",
        ),
        _ => (
            "unreachable",
            "The member cannot be reached.",
            "See whether the process runs, whether the address and the certificates are right, and what its log says last.",
        ),
    };
    let finding = Finding {
        severity: "critical".into(),
        code: code.into(),
        sentence: sentence.into(),
        evidence: vec![error.to_string()],
        advice: advice.into(),
    };
    Examined { endpoint: endpoint.to_owned(), verdict: sentence.into(), findings: vec![finding], report: None }
}

fn as_text(examined: &Examined) -> String {
    let mut text = format!("{}: {}\n", examined.endpoint, examined.verdict);
    for finding in &examined.findings {
        text += &format!("\n  {}: {}\n", finding.severity, finding.sentence);
        finding.evidence.iter().for_each(|line| text += &format!("      {line}\n"));
        text += &format!("      What to do: {}\n", finding.advice);
    }
    text
}

fn as_json(examined: &Examined) -> Value {
    let findings: Vec<Value> = examined
        .findings
        .iter()
        .map(|finding| {
            json!({
                "severity": finding.severity,
                "code": finding.code,
                "sentence": finding.sentence,
                "evidence": finding.evidence,
                "advice": finding.advice,
            })
        })
        .collect();
    json!({
        "endpoint": examined.endpoint,
        "is_reachable": examined.report.is_some(),
        "verdict": examined.verdict,
        "findings": findings,
        "report": examined.report,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(findings: Vec<Finding>) -> Examined {
        Examined { endpoint: "http://a:1".into(), verdict: "v.".into(), findings, report: Some(json!({})) }
    }

    #[test]
    fn the_worst_member_makes_the_exit_code() {
        let gone = || unreachable("http://b:1", &ClientError::Answer("x".into()));
        assert_eq!(status(&[]), 0);
        assert_eq!(status(&[member(vec![])]), 0);
        assert_eq!(status(&[member(vec![not_ready("")]), member(vec![])]), 1);
        assert_eq!(status(&[member(vec![not_ready("")]), gone(), member(vec![])]), 2);
    }

    #[test]
    fn what_keeps_a_member_from_being_asked_is_told_apart() {
        let code = |error| unreachable("http://a:1", &error).findings[0].code.clone();
        let refused = |status| ClientError::Refused { status, message: "m".into() };
        assert_eq!(code(refused(404)), "no_report");
        assert_eq!(code(refused(403)), "refused");
        assert_eq!((code(refused(503)), code(refused(504))), ("no_answer".into(), "no_answer".into()));
        assert_eq!(code(ClientError::Flags("x".into())), "wrong_address");
        assert_eq!(code(ClientError::Io(std::io::ErrorKind::ConnectionRefused.into())), "unreachable");
    }

    #[test]
    fn a_finding_is_told_with_its_evidence_and_what_to_do() {
        let checks = "[+]serializable_read ok\n[-]disk_space failed: db: no room\n\n";
        let text = as_text(&member(vec![not_ready(checks)]));
        let expected = "http://a:1: v.\n\n  critical: The member is not ready: a load balancer sends it nothing.\n      \
                        [-]disk_space failed: db: no room\n      What to do: See which check of /readyz fails; it says why.\n";
        assert_eq!(text, expected);
        assert_eq!(as_text(&member(vec![])), "http://a:1: v.\n");
    }
}
