//! Messages as JSON schemas: strict for answers, lenient for requests, by the rules of the proto3 JSON mapping.

use std::collections::BTreeMap;

use prost_reflect::{Cardinality, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value, json};

use super::texts::Texts;

/// Base64 as answers have it: the standard alphabet, padded.
const BASE64_STRICT: &str = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$";
/// Base64 as requests may have it: either alphabet, padded or not.
const BASE64_LENIENT: &str = "^(?:(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?\
                              |(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-]{2}(?:==)?|[A-Za-z0-9_-]{3}=?)?)$";

/// Which way a message goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Asked,
    Answered,
}

/// The messages that are reached from the operations, by name, and which ways they go.
pub(super) struct Schemas<'t> {
    texts: &'t Texts,
    asked: BTreeMap<String, MessageDescriptor>,
    answered: BTreeMap<String, MessageDescriptor>,
}

impl<'t> Schemas<'t> {
    pub(super) fn new(texts: &'t Texts) -> Schemas<'t> {
        Schemas { texts, asked: BTreeMap::new(), answered: BTreeMap::new() }
    }

    /// Adds a message and all it is made of.
    pub(super) fn reach(&mut self, way: Way, message: &MessageDescriptor) {
        let reached = match way {
            Way::Asked => &mut self.asked,
            Way::Answered => &mut self.answered,
        };
        if reached.insert(message.name().to_owned(), message.clone()).is_some() {
            return;
        }
        for field in message.fields() {
            if let Kind::Message(part) = field.kind() {
                self.reach(way, &part);
            }
        }
    }

    /// A reference to a message's schema; to be asked once everything is reached.
    pub(super) fn reference(&self, way: Way, message: &MessageDescriptor) -> Value {
        reference(&self.message_name(way, message.name()))
    }

    /// The messages with the names of their schemas.
    pub(super) fn messages(&self) -> impl Iterator<Item = (Way, String, &MessageDescriptor)> {
        let asked = self.asked.values().map(|message| (Way::Asked, message));
        let answered = self.answered.values().map(|message| (Way::Answered, message));
        asked.chain(answered).map(|(way, message)| (way, self.message_name(way, message.name()), message))
    }

    /// Every schema by its name.
    pub(super) fn all(&self) -> Map<String, Value> {
        let mut all = BTreeMap::from(scalars());
        for (way, name, message) in self.messages() {
            for field in message.fields() {
                if let Kind::Enum(names) = field.kind() {
                    all.insert(enum_name(way, &names), enumeration(way, &names));
                }
            }
            all.insert(name, self.message(way, message));
        }
        all.into_iter().collect()
    }

    /// What goes both ways has two schemas.
    fn message_name(&self, way: Way, name: &str) -> String {
        let both = self.asked.contains_key(name) && self.answered.contains_key(name);
        if both && way == Way::Asked { format!("{name}Input") } else { name.to_owned() }
    }

    fn message(&self, way: Way, message: &MessageDescriptor) -> Value {
        let mut properties = Map::new();
        for field in message.fields() {
            let mut schema = self.field(way, &field);
            schema["description"] = self.texts.field(message.name(), field.name()).into();
            if way == Way::Asked && field.json_name() != field.name() {
                schema["x-lower-camel"] = field.json_name().into();
            }
            properties.insert(field.name().to_owned(), schema);
        }
        let mut schema = json!({
            "type": "object",
            "description": self.texts.message(message.name()),
            "properties": properties,
            "additionalProperties": way == Way::Asked,
        });
        let oneofs: Vec<Value> = message
            .oneofs()
            .flat_map(|oneof| oneof.fields().map(|field| json!({"required": [field.name()]})).collect::<Vec<_>>())
            .collect();
        if !oneofs.is_empty() {
            schema["oneOf"] = oneofs.into();
        }
        schema
    }

    fn field(&self, way: Way, field: &FieldDescriptor) -> Value {
        let one = match (field.kind(), way) {
            (Kind::Bool, _) => json!({"type": "boolean"}),
            (Kind::Uint32, _) => json!({"type": "integer", "minimum": 0, "maximum": u32::MAX}),
            (Kind::String, _) => json!({"type": "string"}),
            (Kind::Int64, Way::Asked) => reference("Int64Input"),
            (Kind::Int64, Way::Answered) => reference("Int64"),
            (Kind::Uint64, Way::Asked) => reference("Uint64Input"),
            (Kind::Uint64, Way::Answered) => reference("Uint64"),
            (Kind::Bytes, Way::Asked) => reference("BytesInput"),
            (Kind::Bytes, Way::Answered) => reference("Bytes"),
            (Kind::Enum(names), _) => reference(&enum_name(way, &names)),
            (Kind::Message(message), _) => self.reference(way, &message),
            (other, _) => panic!("{}: no schema for {other:?}", field.full_name()),
        };
        if field.cardinality() == Cardinality::Repeated { json!({"type": "array", "items": one}) } else { one }
    }
}

/// A reference to a schema of the document.
pub(super) fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// The schema's name of an enum: its own with that of the message it belongs to in front.
pub(super) fn enum_name(way: Way, names: &EnumDescriptor) -> String {
    let own = names.full_name().strip_prefix(names.package_name()).unwrap().replace('.', "");
    if way == Way::Asked { format!("{own}Input") } else { own }
}

fn enumeration(way: Way, names: &EnumDescriptor) -> Value {
    let texts: Vec<String> = names.values().map(|value| value.name().to_owned()).collect();
    if way == Way::Answered {
        return json!({"type": "string", "enum": texts, "description": "The first is left out."});
    }
    let numbers: Vec<i32> = names.values().map(|value| value.number()).collect();
    let pairs: Vec<String> = names.values().map(|value| format!("{} = {}", value.name(), value.number())).collect();
    json!({
        "description": format!("By name or number: {}. A name nobody knows counts as left out.", pairs.join(", ")),
        "oneOf": [{"type": "string", "enum": texts}, {"type": "integer", "enum": numbers}],
    })
}

fn scalars() -> [(String, Value); 6] {
    let input = |pattern: &str, minimum: Value, maximum: Value| {
        json!({
            "description": "A 64-bit integer: decimal digits in a string, or a number.",
            "oneOf": [
                {"type": "string", "pattern": pattern},
                {"type": "integer", "minimum": minimum, "maximum": maximum},
            ],
        })
    };
    // Patterns with a digit less than the largest number has, so that whatever fits them is a number that fits.
    [
        (
            "Int64".into(),
            json!({"type": "string", "pattern": "^-?[0-9]{1,19}$", "description": "A signed 64-bit integer."}),
        ),
        (
            "Uint64".into(),
            json!({"type": "string", "pattern": "^[0-9]{1,20}$", "description": "An unsigned 64-bit integer."}),
        ),
        ("Int64Input".into(), input("^(?:0|-?[1-9][0-9]{0,17})$", i64::MIN.into(), i64::MAX.into())),
        ("Uint64Input".into(), input("^(?:0|[1-9][0-9]{0,18})$", 0.into(), u64::MAX.into())),
        (
            "Bytes".into(),
            json!({"type": "string", "contentEncoding": "base64", "pattern": BASE64_STRICT, "description": "Bytes in base64."}),
        ),
        (
            "BytesInput".into(),
            json!({
                "type": "string", "contentEncoding": "base64", "pattern": BASE64_LENIENT,
                "description": "Bytes in base64, in the standard or the URL-safe alphabet, padded or not.",
            }),
        ),
    ]
}
