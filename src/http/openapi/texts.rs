//! What the document says in words, and its examples: the files beside it.

use serde_json::{Map, Value, json};

const OPERATIONS: &str = include_str!("../../../openapi/operations.json");
const FIELDS: &str = include_str!("../../../openapi/fields.json");
const FRAME: &str = include_str!("../../../openapi/frame.json");

/// The texts, parsed.
pub(super) struct Texts {
    /// By gRPC service and method: `etcdserverpb.KV/Range`.
    pub(super) operations: Map<String, Value>,
    /// By message and field; under `*` what holds for a field of any message.
    fields: Value,
    /// What is not made from the schema.
    pub(super) frame: Value,
}

impl Texts {
    pub(super) fn read() -> Texts {
        Texts {
            operations: serde_json::from_str(OPERATIONS).unwrap(),
            fields: serde_json::from_str(FIELDS).unwrap(),
            frame: serde_json::from_str(FRAME).unwrap(),
        }
    }

    /// What a message is.
    pub(super) fn message(&self, message: &str) -> &str {
        self.fields[message][""].as_str().unwrap_or_else(|| panic!("no text for the message {message}"))
    }

    /// What a field is.
    pub(super) fn field(&self, message: &str, field: &str) -> &str {
        let own = self.fields[message][field].as_str();
        let text = own.or_else(|| self.fields["*"][field].as_str());
        text.unwrap_or_else(|| panic!("no text for the field {message}.{field}"))
    }

    /// An operation's description: what it does, and what is surprising about it.
    pub(super) fn description(operation: &Value) -> String {
        let mut text = operation["does"].as_str().unwrap().to_owned();
        for surprise in operation["surprises"].as_array().unwrap() {
            let separator = if text.contains("\n\n- ") { "\n- " } else { "\n\n- " };
            text += &format!("{separator}{}", surprise.as_str().unwrap());
        }
        text
    }

    /// An operation's example of an answer, with the header that its revision (`at`) stands for.
    pub(super) fn answer(operation: &Value) -> Value {
        let mut answer = Map::new();
        if let Some(revision) = operation.get("at").and_then(Value::as_u64) {
            answer.insert("header".into(), header(revision));
        }
        answer.extend(operation["response"].as_object().unwrap().clone());
        Value::Object(answer)
    }
}

/// A header; revision 0 is left out, as on the wire.
fn header(revision: u64) -> Value {
    let mut header = json!({"cluster_id": "14841639068965178418", "member_id": "10276657743932975437"});
    if revision > 0 {
        header["revision"] = revision.to_string().into();
    }
    header["raft_term"] = "2".into();
    header
}
