//! The document is what the code says it is: made anew it is the same, and nothing is missing from it.

use std::{collections::BTreeSet, fs, path::Path};

use prost_reflect::{DynamicMessage, Kind, MessageDescriptor, SerializeOptions};
use serde_json::Value;

use super::{DOCUMENT, document::make, schemas::enum_name, texts::Texts};
use crate::{
    error::Code,
    http::{reply, routes::ROUTES, side},
};

fn document() -> Value {
    serde_json::from_str(DOCUMENT).unwrap()
}

#[test]
fn the_file_is_what_would_be_made() {
    let texts = Texts::read();
    let mut made = serde_json::to_string_pretty(&make(&texts).document).unwrap();
    made.push('\n');
    if std::env::var_os("REVGATE_UPDATE_OPENAPI").is_some() {
        fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi/revgate.json"), made).unwrap();
        return;
    }
    let differing = DOCUMENT.lines().zip(made.lines()).position(|(is, should)| is != should);
    assert!(
        DOCUMENT == made,
        "openapi/revgate.json differs from what the code says, first after line {differing:?}; \
         REVGATE_UPDATE_OPENAPI=1 cargo test --lib openapi writes it anew"
    );
}

#[test]
fn every_path_is_there_and_nothing_else() {
    let document = document();
    let paths: BTreeSet<&str> = document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected: BTreeSet<&str> = ROUTES.iter().flat_map(|route| route.paths).copied().collect();
    expected.extend(side::TEMPLATES);
    expected.extend(["/livez/{check}", "/readyz/{check}"]);
    assert_eq!(paths, expected);
    for route in ROUTES {
        for path in route.paths {
            let operation = &document["paths"][path]["post"];
            for part in ["operationId", "summary", "description"] {
                assert!(!operation[part].as_str().unwrap().is_empty(), "{path}: {part}");
            }
        }
    }
    let ids: Vec<&str> = document["paths"].as_object().unwrap().values().filter_map(operation_id).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), paths.len(), "{ids:?}");
}

fn operation_id(path: &Value) -> Option<&str> {
    path.as_object()?.values().next()?["operationId"].as_str()
}

#[test]
fn every_field_enum_and_error_is_there() {
    let texts = Texts::read();
    let made = make(&texts);
    let schemas = &document()["components"]["schemas"];
    let mut fields = 0;
    for (way, name, message) in made.schemas.messages() {
        let properties = schemas[&name]["properties"].as_object().unwrap();
        let named: Vec<String> = message.fields().map(|field| field.name().to_owned()).collect();
        assert_eq!(properties.keys().cloned().collect::<Vec<_>>(), named, "{name}");
        fields += named.len();
        for field in message.fields() {
            let Kind::Enum(names) = field.kind() else { continue };
            let schema = schemas[enum_name(way, &names)].to_string();
            for value in names.values() {
                assert!(schema.contains(&format!("\"{}\"", value.name())), "{name}.{}: {}", field.name(), value.name());
            }
        }
    }
    assert!(fields > 100, "only {fields} fields were looked at");
    let code = schemas["Code"]["description"].as_str().unwrap();
    for known in Code::ALL {
        assert!(code.contains(&format!("- {} {}: status {}", known.number(), known.name(), known.http_status())));
    }
    let responses = document()["components"]["responses"].to_string();
    for (error, _, _, message) in reply::tests::table() {
        // Those that say it in their own words are shown with other words.
        let fixed =
            message.len() > 5 && !message.contains('"') && !message.ends_with(" x") && !message.ends_with(": x");
        assert!(!fixed || responses.contains(message), "{error:?}");
    }
}

/// A route without texts fails where the document is made; texts that fit nothing in the schema fail here. Texts without a
/// route are those of what is still to come.
#[test]
fn texts_belong_to_methods_of_the_schema() {
    let texts = Texts::read();
    let pool = prost_reflect::DescriptorPool::decode(crate::proto::DESCRIPTORS).unwrap();
    let known: BTreeSet<String> = pool
        .services()
        .flat_map(|service| service.methods().collect::<Vec<_>>())
        .map(|rpc| format!("{}/{}", rpc.parent_service().full_name(), rpc.name()))
        .collect();
    let told: BTreeSet<String> = texts.operations.keys().cloned().collect();
    assert_eq!(told, known);
}

#[test]
fn examples_are_messages() {
    let texts = Texts::read();
    let pool = prost_reflect::DescriptorPool::decode(crate::proto::DESCRIPTORS).unwrap();
    for rpc in pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()) {
        let name = format!("{}/{}", rpc.parent_service().full_name(), rpc.name());
        let text = &texts.operations[&name];
        read_strictly(&rpc.input(), &text["request"], &name);
        let answer = Texts::answer(text);
        // As answers are written: in declared order, nothing that would be left out.
        let written = read_strictly(&rpc.output(), &answer, &name);
        assert_eq!(written, answer.to_string(), "{name}");
    }
}

/// Reads an example by prost-reflect, which refuses what it does not know, and writes it again.
fn read_strictly(message: &MessageDescriptor, example: &Value, name: &str) -> String {
    let read = DynamicMessage::deserialize(message.clone(), example.clone());
    let read = read.unwrap_or_else(|error| panic!("{name}: {error} in {example}"));
    let mut written = serde_json::Serializer::new(Vec::new());
    read.serialize_with_options(&mut written, &SerializeOptions::new().use_proto_field_name(true)).unwrap();
    String::from_utf8(written.into_inner()).unwrap()
}
