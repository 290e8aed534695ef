//! Makes the document: the routes with their texts, the schemas of their messages, and every error.

use std::collections::BTreeMap;

use prost_reflect::{DescriptorPool, MethodDescriptor};
use serde_json::{Map, Value, json};

use super::{
    schemas::{Schemas, Way, reference},
    texts::Texts,
};
use crate::{
    error::{ApiError, Code},
    http::{
        reply,
        routes::{ROUTES, Route},
    },
    proto::DESCRIPTORS,
};

/// What any call can be answered with, as far as there are such errors.
const COMMON_STATUSES: [u16; 7] = [400, 401, 403, 429, 500, 503, 504];

/// The document and what it was made from.
pub(super) struct Made<'t> {
    pub(super) document: Value,
    pub(super) schemas: Schemas<'t>,
}

/// A route's method in the schema.
pub(in crate::http) fn rpc(route: &Route) -> MethodDescriptor {
    let pool = DescriptorPool::decode(DESCRIPTORS).unwrap();
    let service = pool.get_service_by_name(route.service);
    let service = service.unwrap_or_else(|| panic!("the schema has no service {}", route.service));
    let found = service.methods().find(|method| method.name() == route.name);
    found.unwrap_or_else(|| panic!("the schema has no method {}/{}", route.service, route.name))
}

/// Where a route's texts are.
fn key(route: &Route) -> String {
    format!("{}/{}", route.service, route.name)
}

pub(super) fn make(texts: &Texts) -> Made<'_> {
    let mut schemas = Schemas::new(texts);
    for route in ROUTES {
        let rpc = rpc(route);
        schemas.reach(Way::Asked, &rpc.input());
        schemas.reach(Way::Answered, &rpc.output());
    }
    let errors = errors();
    let mut paths = Map::new();
    for route in ROUTES {
        for (index, path) in route.paths.iter().enumerate() {
            let operation = operation(route, index, texts, &schemas, &errors);
            paths.insert((*path).to_owned(), json!({ "post": operation }));
        }
    }
    let frame = &texts.frame;
    paths.extend(frame["paths"].as_object().unwrap().clone());
    let mut all = schemas.all();
    all.extend(error_schemas());
    let mut parameters = frame["parameters"].as_object().unwrap().clone();
    parameters.extend(frame["sideParameters"].as_object().unwrap().clone());
    let mut responses = error_responses(&errors);
    responses.extend(frame["sideResponses"].as_object().unwrap().clone());
    let document = json!({
        "openapi": "3.1.0",
        "info": info(frame),
        "servers": [{"url": "/", "description": "The member that served this document."}],
        "security": [{}, {"token": []}, {"certificate": []}],
        "tags": tags(frame),
        "paths": paths,
        "components": {
            "securitySchemes": frame["securitySchemes"],
            "parameters": parameters,
            "responses": responses,
            "schemas": all,
        },
    });
    Made { document, schemas }
}

fn info(frame: &Value) -> Value {
    let mut info = frame["info"].clone();
    let paragraphs: Vec<&str> =
        info["description"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    info["description"] = paragraphs.join("\n\n").into();
    info["version"] = env!("CARGO_PKG_VERSION").into();
    info
}

/// Those that are used, in the order of the frame.
fn tags(frame: &Value) -> Vec<Value> {
    let used = |service: &str| service == "side" || ROUTES.iter().any(|route| route.service == service);
    let tags = frame["tags"].as_object().unwrap().iter().filter(|(service, _)| used(service));
    tags.map(|(_, tag)| json!({"name": tag[0], "description": tag[1]})).collect()
}

fn operation(
    route: &Route,
    path_index: usize,
    texts: &Texts,
    schemas: &Schemas<'_>,
    errors: &BTreeMap<u16, Vec<ApiError>>,
) -> Value {
    let rpc = rpc(route);
    let key = key(route);
    let text = texts.operations.get(&key).unwrap_or_else(|| panic!("no texts for {key}"));
    let mut description = Texts::description(text);
    if path_index > 0 {
        description = format!("The same as `{}`. {description}", route.paths[0]);
    }
    let alias = if path_index > 0 { "Alias" } else { "" };
    let asked = schemas.reference(Way::Asked, &rpc.input());
    let body = match rpc.is_client_streaming() {
        true => "The request, or several, one after another.",
        false => "The request. No body is the empty object.",
    };
    json!({
        "operationId": format!("{}{alias}", route.name),
        "tags": [texts.frame["tags"][route.service][0]],
        "summary": text["summary"],
        "description": description,
        "parameters": [{"$ref": "#/components/parameters/GrpcTimeout"}],
        "requestBody": {
            "description": body,
            "content": {"application/json": {"schema": asked, "example": text["request"]}},
        },
        "responses": responses(&rpc, text, schemas, errors),
    })
}

fn responses(
    rpc: &MethodDescriptor,
    text: &Value,
    schemas: &Schemas<'_>,
    errors: &BTreeMap<u16, Vec<ApiError>>,
) -> Map<String, Value> {
    let answered = schemas.reference(Way::Answered, &rpc.output());
    let streams = rpc.is_server_streaming();
    let well = if streams {
        json!({
            "description": "One JSON object a line, as things happen; the last is an error if the stream ends badly.",
            "content": {"application/json": {
                "schema": {"oneOf": [
                    {
                        "type": "object", "required": ["result"], "additionalProperties": false,
                        "properties": {"result": answered},
                    },
                    reference("StreamError"),
                ]},
                "example": {"result": Texts::answer(text)},
            }},
        })
    } else {
        json!({
            "description": "The answer.",
            "content": {"application/json": {"schema": answered, "example": Texts::answer(text)}},
        })
    };
    let mut responses = Map::from_iter([("200".to_owned(), well)]);
    let own = text["statuses"].as_array().into_iter().flatten().map(|status| status.as_u64().unwrap());
    let mut statuses: Vec<u16> = own.map(|status| status.try_into().unwrap()).collect();
    statuses.extend(COMMON_STATUSES);
    statuses.sort_unstable();
    for status in statuses.into_iter().filter(|status| errors.contains_key(status)) {
        let name = response_name(status, streams);
        responses.insert(status.to_string(), json!({"$ref": format!("#/components/responses/{name}")}));
    }
    responses
}

/// Every error by the status it is answered with. Those whose text is made up by what went wrong have one as it could be.
fn errors() -> BTreeMap<u16, Vec<ApiError>> {
    let mut errors: BTreeMap<u16, Vec<ApiError>> = BTreeMap::new();
    for (error, ..) in reply::tests::table() {
        let error = match error {
            ApiError::Malformed(_) => ApiError::Malformed("malformed request: malformed base64 at byte 7".into()),
            ApiError::Unimplemented(_) => ApiError::Unimplemented("not to be had here".into()),
            ApiError::DefragmentFailed(_) => ApiError::DefragmentFailed("no space left on device".into()),
            ApiError::WatchRefused(_) => {
                ApiError::WatchRefused("rpc error: code = PermissionDenied desc = etcdserver: permission denied".into())
            }
            ApiError::DataLoss(_) => ApiError::DataLoss("page 17 is damaged".into()),
            ApiError::Internal(_) => ApiError::Internal("a task ended early".into()),
            other => other,
        };
        errors.entry(error.http_status()).or_default().push(error);
    }
    errors
}

fn response_name(status: u16, streams: bool) -> String {
    let code = Code::ALL.into_iter().find(|code| code.http_status() == status);
    // Of the statuses that are no code's there is one.
    let text = code.map_or("Gone".to_owned(), |code| code.http_status_text().replace(' ', ""));
    format!("{text}{}", if streams { "OnStream" } else { "" })
}

fn error_responses(errors: &BTreeMap<u16, Vec<ApiError>>) -> Map<String, Value> {
    let mut responses = Map::new();
    for (status, errors) in errors {
        for streams in [false, true] {
            let schema = match streams {
                true => json!({"oneOf": [reference("StreamError"), reference("Error")]}),
                false => reference("Error"),
            };
            let mut lines: Vec<String> =
                errors.iter().map(|error| format!("- code {}: {error}", error.code().number())).collect();
            lines.sort_unstable();
            let examples = errors.iter().map(|error| (variant(error), json!({"value": body(error, streams)})));
            let response = json!({
                "description": format!("It failed, with one of:\n\n{}", lines.join("\n")),
                "content": {"application/json": {"schema": schema, "examples": Map::from_iter(examples)}},
            });
            responses.insert(response_name(*status, streams), response);
        }
    }
    responses
}

/// The name of an error's variant.
fn variant(error: &ApiError) -> String {
    format!("{error:?}").chars().take_while(char::is_ascii_alphanumeric).collect()
}

/// What is really sent.
fn body(error: &ApiError, streams: bool) -> Value {
    let mut text = Vec::new();
    if streams {
        reply::write_stream_error(&mut text, error);
    } else {
        text = reply::error_body(error);
    }
    serde_json::from_slice(&text).unwrap()
}

fn error_schemas() -> [(String, Value); 3] {
    let codes: Vec<u8> = Code::ALL.iter().map(|code| code.number()).collect();
    let lines: Vec<String> = Code::ALL
        .iter()
        .map(|code| format!("- {} {}: status {}", code.number(), code.name(), code.http_status()))
        .collect();
    let code = json!({
        "type": "integer",
        "enum": codes,
        "description": format!("gRPC's codes, and the statuses they come with:\n\n{}", lines.join("\n")),
    });
    let message = "What went wrong, in etcd's words.";
    let error = json!({
        "type": "object",
        "description": "Why a call failed.",
        "required": ["error", "code", "message"],
        "additionalProperties": false,
        "properties": {
            "error": {"type": "string", "description": "The same as `message`: older gateways had only this."},
            "code": reference("Code"),
            "message": {"type": "string", "description": message},
            "details": {"type": "array", "items": {"type": "object"}, "description": "More about it, when there is more."},
            "compact_revision": {
                "type": "string",
                "format": "int64",
                "description": "With status 410: the first revision that can be read.",
            },
        },
    });
    let stream_error = json!({
        "type": "object",
        "description": "Why a stream failed: its last line.",
        "required": ["error"],
        "additionalProperties": false,
        "properties": {"error": {
            "type": "object",
            "required": ["grpc_code", "http_code", "message", "http_status", "code"],
            "additionalProperties": false,
            "properties": {
                "grpc_code": reference("Code"),
                "http_code": {"type": "integer", "description": "The status it would have had as a call."},
                "message": {"type": "string", "description": message},
                "http_status": {"type": "string", "description": "That status in words."},
                "code": reference("Code"),
                "details": {"type": "array", "items": {"type": "object"}, "description": "More about it, when there is more."},
            },
        }},
    });
    [("Code".into(), code), ("Error".into(), error), ("StreamError".into(), stream_error)]
}
