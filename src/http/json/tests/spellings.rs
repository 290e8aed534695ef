//! One request has many spellings: either name of a field, numbers in digits or in quotes, either base64, padded or not,
//! enums by name or number, nulls, zeros and unknown fields wherever they may be, escapes, white space. All readers take all.

use std::fmt::Debug;

use proptest::prelude::*;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, ReflectMessage, Value,
    prost::{Message, Name},
};

use crate::{
    error::ApiError,
    http::json::{generic, read},
    proto::{DESCRIPTORS, etcdserverpb as pb},
};

/// Messages inside each other, in what is made up here.
const DEPTH_MAX: u32 = 3;

/// A cheap source of choices: one seed, one message, one spelling.
struct Choices(u64);

impl Choices {
    /// A number below `end`.
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn of<'t>(&mut self, all: &[&'t str]) -> &'t str {
        all[self.below(all.len())]
    }
}

fn any_message(descriptor: &MessageDescriptor, depth: u32, choices: &mut Choices) -> DynamicMessage {
    let mut message = DynamicMessage::new(descriptor.clone());
    for field in descriptor.fields() {
        let taken = field.containing_oneof().is_some_and(|oneof| oneof.fields().any(|other| message.has_field(&other)));
        let too_deep = depth >= DEPTH_MAX && matches!(field.kind(), Kind::Message(_));
        if taken || too_deep || choices.one_in(3) {
            continue;
        }
        let value = if field.is_list() {
            let items = 0..choices.below(4);
            Value::List(items.map(|_| any_value(&field.kind(), depth, choices)).collect())
        } else {
            any_value(&field.kind(), depth, choices)
        };
        message.set_field(&field, value);
    }
    message
}

fn any_value(kind: &Kind, depth: u32, choices: &mut Choices) -> Value {
    let small = i64::try_from(choices.below(1000)).unwrap();
    match kind {
        Kind::Bool => Value::Bool(choices.one_in(2)),
        Kind::Uint32 => Value::U32([0, 7, u32::MAX][choices.below(3)]),
        Kind::Int64 => Value::I64([0, 1, -1, small * 10, i64::MAX, i64::MIN, (1 << 53) + 1][choices.below(7)]),
        Kind::Uint64 => Value::U64([0, 1, small.unsigned_abs() * 100, u64::MAX, (1 << 53) + 1][choices.below(5)]),
        Kind::String => Value::String(choices.of(&["", "x", "a \"b\"\\/c", "\u{1}\n\t", "é€𝄞", "null"]).into()),
        Kind::Bytes => {
            let length = choices.below(9);
            Value::Bytes((0..length).map(|_| u8::try_from(choices.below(256)).unwrap()).collect::<Vec<_>>().into())
        }
        Kind::Enum(names) => {
            let known: Vec<i32> = names.values().map(|value| value.number()).chain([99, -1, i32::MAX]).collect();
            Value::EnumNumber(known[choices.below(known.len())])
        }
        Kind::Message(descriptor) => Value::Message(any_message(descriptor, depth + 1, choices)),
        other => panic!("no value of kind {other:?}"),
    }
}

fn spell_message(message: &DynamicMessage, choices: &mut Choices) -> String {
    let mut fields = Vec::new();
    for field in message.descriptor().fields() {
        if let Some(value) = spell_field(message, &field, choices) {
            let name = if choices.one_in(2) { field.name() } else { field.json_name() };
            fields.push(format!("{}{}:{value}", spell_string(name, choices), space(choices)));
        }
        if choices.one_in(10) {
            let index = fields.len();
            let junk =
                choices.of(&["null", "1e9", "\"\\ud834\\udd1e\"", "[{\"key\":[]}]", "{\"a\":{\"a\":true},\"a\":0}"]);
            fields.push(format!("\"nobody{index}\":{junk}"));
        }
    }
    if !fields.is_empty() {
        let first = choices.below(fields.len());
        fields.rotate_left(first);
    }
    format!("{{{}{}}}", space(choices), fields.join(&format!("{},{}", space(choices), space(choices))))
}

/// `None`: it is left out.
fn spell_field(message: &DynamicMessage, field: &FieldDescriptor, choices: &mut Choices) -> Option<String> {
    if message.has_field(field) {
        let value = message.get_field(field);
        return Some(match value.as_ref() {
            Value::List(items) => {
                let items: Vec<String> = items.iter().map(|item| spell(&field.kind(), item, choices)).collect();
                format!("[{}{}]", items.join(","), space(choices))
            }
            value => spell(&field.kind(), value, choices),
        });
    }
    if choices.one_in(6) {
        return Some("null".into());
    }
    // What is unset may be said to be zero, unless that says which member of a oneof is meant.
    if field.containing_oneof().is_some() || !choices.one_in(4) {
        return None;
    }
    let zeros: &[&str] = match field.kind() {
        _ if field.is_list() => &["[]", "[ ]"],
        Kind::Bool => &["false"],
        Kind::String | Kind::Bytes => &["\"\""],
        Kind::Enum(_) => &["0", "\"SIDEWAYS\"", "\"\"", "\"0\""],
        Kind::Message(_) => return None,
        _ => &["0", "-0", "\"0\"", "0.0", "0e7", "\"-0\""],
    };
    Some(choices.of(zeros).into())
}

fn spell(kind: &Kind, value: &Value, choices: &mut Choices) -> String {
    match value {
        Value::Bool(value) => value.to_string(),
        Value::U32(value) => spell_integer(i128::from(*value), choices),
        Value::I64(value) => spell_integer(i128::from(*value), choices),
        Value::U64(value) => spell_integer(i128::from(*value), choices),
        Value::String(value) => spell_string(value, choices),
        Value::Bytes(value) => {
            let encoding = match choices.below(4) {
                0 => base64_simd::STANDARD,
                1 => base64_simd::STANDARD_NO_PAD,
                2 => base64_simd::URL_SAFE,
                _ => base64_simd::URL_SAFE_NO_PAD,
            };
            spell_string(&encoding.encode_to_string(value), choices)
        }
        Value::EnumNumber(number) => match kind.as_enum().unwrap().get_value(*number) {
            Some(known) if choices.one_in(2) => spell_string(known.name(), choices),
            _ if choices.one_in(3) => format!("{number}.0"),
            _ => number.to_string(),
        },
        Value::Message(message) => spell_message(message, choices),
        other => panic!("no spelling of {other:?}"),
    }
}

fn spell_integer(value: i128, choices: &mut Choices) -> String {
    let text = match choices.below(5) {
        0 => format!("{value}.0"),
        1 => format!("{value}e0"),
        2 if value % 100 == 0 => format!("{}E+2", value / 100),
        3 if value != 0 => format!("{value}00e-2"),
        _ => value.to_string(),
    };
    if choices.one_in(2) { format!("\"{text}\"") } else { text }
}

fn spell_string(text: &str, choices: &mut Choices) -> String {
    let mut spelled = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => spelled.extend(['\\', character]),
            '/' if choices.one_in(2) => spelled.push_str("\\/"),
            '\n' if choices.one_in(2) => spelled.push_str("\\n"),
            _ if u32::from(character) < 32 || choices.one_in(12) => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let digits = if choices.one_in(2) { format!("{unit:04x}") } else { format!("{unit:04X}") };
                    spelled.push_str(&format!("\\u{digits}"));
                }
            }
            _ => spelled.push(character),
        }
    }
    spelled.push('"');
    spelled
}

fn space(choices: &mut Choices) -> &'static str {
    choices.of(&["", "", "", " ", "\n", "\t\r "])
}

fn both_read<T: Message + Name + Default + PartialEq + Debug>(seed: u64, fast: fn(&[u8]) -> Result<T, ApiError>) {
    let choices = &mut Choices(seed);
    let descriptor = generic::descriptor(&T::full_name()).unwrap();
    let message = any_message(&descriptor, 0, choices);
    let text = spell_message(&message, choices);
    let expected: T = message.transcode_to().unwrap();
    assert_eq!(fast(text.as_bytes()).as_ref(), Ok(&expected), "{text}");
    assert_eq!(generic::read::<T>(text.as_bytes()).as_ref(), Ok(&expected), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn hot_requests_are_read_however_they_are_spelled(seed: u64) {
        both_read::<pb::RangeRequest>(seed, read::range);
        both_read::<pb::PutRequest>(seed, read::put);
        both_read::<pb::DeleteRangeRequest>(seed, read::delete_range);
        both_read::<pb::TxnRequest>(seed, read::txn);
        both_read::<pb::WatchRequest>(seed, read::watch);
        both_read::<pb::LeaseKeepAliveRequest>(seed, read::keep_alive);
    }
}

/// Every message a method of the schema is asked with or answers with: any spelling is read, and what is written is read.
#[test]
fn every_message_is_read_however_it_is_spelled() {
    let pool = DescriptorPool::decode(DESCRIPTORS).unwrap();
    let mut messages = 0;
    for method in pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()) {
        for descriptor in [method.input(), method.output()] {
            messages += 1;
            for seed in 0..12 {
                let choices = &mut Choices(seed);
                let message = any_message(&descriptor, 0, choices);
                let text = spell_message(&message, choices);
                let written = written(&message);
                for text in [text.as_str(), written.as_str()] {
                    let read = generic::read_by(&descriptor, text.as_bytes());
                    // Compared as written: a zero that was read and one that was never set are two things to prost-reflect.
                    assert_eq!(self::written(&read.expect(text)), written, "{text}");
                }
            }
        }
    }
    assert!(messages > 90, "only {messages} messages were looked at");
}

fn written(message: &DynamicMessage) -> String {
    let mut written = Vec::new();
    generic::write_message(message, &mut written);
    String::from_utf8(written).unwrap()
}
