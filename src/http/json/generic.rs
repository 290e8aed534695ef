//! The proto3 JSON mapping for any message of the schema, by its descriptor: the cold routes' reader and writer, and the
//! yardstick the fast ones are measured against.
//!
//! Reading: both spellings of names, unknown fields skipped, `null` is unset, a field or oneof given twice is refused.
//! Writing: the schema's own names in declared order, what is unset or zero left out, 64-bit integers as strings.

use std::sync::LazyLock;

use prost_reflect::{
    Cardinality, DescriptorPool, DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor,
    ReflectMessage, Value,
    prost::{Message, Name},
};

use super::{JsonError, scalar::Seen, scan::Scanner, write};
use crate::{error::ApiError, proto::DESCRIPTORS};

static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(DESCRIPTORS).expect("the descriptor set was made by our own build"));

/// Descriptor of a message, by its full name (`etcdserverpb.RangeRequest`).
pub(crate) fn descriptor(full_name: &str) -> Result<MessageDescriptor, ApiError> {
    POOL.get_message_by_name(full_name).ok_or_else(|| ApiError::Internal(format!("the schema has no {full_name}")))
}

/// Reads the first JSON value of `text`; no value at all is the empty message. What follows the value is ignored.
pub(crate) fn read<T: Message + Default + Name>(text: &[u8]) -> Result<T, ApiError> {
    let message = read_by(&descriptor(&T::full_name())?, text)?;
    message.transcode_to().map_err(|error| ApiError::Malformed(format!("malformed request: {error}")))
}

/// The same for a message that is known by its descriptor only.
pub(crate) fn read_by(descriptor: &MessageDescriptor, text: &[u8]) -> Result<DynamicMessage, ApiError> {
    let mut scanner = Scanner::new(text);
    if scanner.at_end() || scanner.null()? {
        return Ok(DynamicMessage::new(descriptor.clone()));
    }
    Ok(read_message(descriptor, &mut scanner)?)
}

/// Appends `message` as JSON.
pub(crate) fn write<T: Message + Name>(message: &T, out: &mut Vec<u8>) -> Result<(), ApiError> {
    let mut dynamic = DynamicMessage::new(descriptor(&T::full_name())?);
    dynamic.transcode_from(message).map_err(|error| ApiError::Internal(error.to_string()))?;
    write_message(&dynamic, out);
    Ok(())
}

fn read_message(descriptor: &MessageDescriptor, scanner: &mut Scanner<'_>) -> Result<DynamicMessage, JsonError> {
    let mut message = DynamicMessage::new(descriptor.clone());
    let mut seen = Seen::default();
    scanner.object(|scanner, name| {
        let known =
            (0_u32..).zip(descriptor.fields()).find(|(_, field)| field.name() == name || field.json_name() == name);
        let Some((index, field)) = known else {
            return scanner.skip_value();
        };
        let set = match field.containing_oneof().and_then(|oneof| oneof_index(descriptor, oneof.name())) {
            Some(oneof) => seen.member(oneof, index, scanner)?,
            None => seen.field(index, scanner)?,
        };
        if set && let Some(value) = read_field(&field, scanner)? {
            message.set_field(&field, value);
        }
        Ok(())
    })?;
    Ok(message)
}

fn oneof_index(descriptor: &MessageDescriptor, name: &str) -> Option<u32> {
    (0_u32..).zip(descriptor.oneofs()).find(|(_, oneof)| oneof.name() == name).map(|(index, _)| index)
}

fn read_field(field: &FieldDescriptor, scanner: &mut Scanner<'_>) -> Result<Option<Value>, JsonError> {
    if field.cardinality() != Cardinality::Repeated {
        return read_value(&field.kind(), scanner);
    }
    let mut items = Vec::new();
    scanner.array(|scanner| {
        items.extend(read_value(&field.kind(), scanner)?);
        Ok(())
    })?;
    Ok(Some(Value::List(items)))
}

/// `None`: an enum's name that nobody knows.
fn read_value(kind: &Kind, scanner: &mut Scanner<'_>) -> Result<Option<Value>, JsonError> {
    Ok(Some(match kind {
        Kind::Bool => Value::Bool(scanner.bool()?),
        Kind::Int32 => Value::I32(scanner.integer("int32")?),
        Kind::Uint32 => Value::U32(scanner.integer("uint32")?),
        Kind::Int64 => Value::I64(scanner.int64()?),
        Kind::Uint64 => Value::U64(scanner.uint64()?),
        Kind::String => Value::String(scanner.string()?.into_owned()),
        Kind::Bytes => Value::Bytes(scanner.bytes()?),
        Kind::Enum(names) => return Ok(scanner.enumeration(|name| enum_number(names, name))?.map(Value::EnumNumber)),
        Kind::Message(descriptor) => Value::Message(read_message(descriptor, scanner)?),
        // A test sees to it that the schema has no field of another kind.
        other => return Err(scanner.error(format!("fields of type {other:?} cannot be read"))),
    }))
}

fn enum_number(names: &EnumDescriptor, name: &str) -> Option<i32> {
    names.get_value_by_name(name).map(|value| value.number())
}

/// Appends a message that is known by its descriptor only.
pub(crate) fn write_message(message: &DynamicMessage, out: &mut Vec<u8>) {
    let mut object = write::Object::begin(out);
    for field in message.descriptor().fields() {
        if !message.has_field(&field) {
            continue;
        }
        let out = object.name(field.name());
        match message.get_field(&field).as_ref() {
            Value::List(items) => {
                let mut array = write::Array::begin(out);
                for item in items {
                    write_value(&field.kind(), item, array.item());
                }
                array.end();
            }
            value => write_value(&field.kind(), value, out),
        }
    }
    object.end();
}

fn write_value(kind: &Kind, value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Bool(value) => write::bool(out, *value),
        Value::I32(value) => write::number(out, *value),
        Value::U32(value) => write::number(out, *value),
        Value::I64(value) => write::quoted_number(out, *value),
        Value::U64(value) => write::quoted_number(out, *value),
        Value::String(value) => write::string(out, value),
        Value::Bytes(value) => write::bytes(out, value),
        Value::EnumNumber(value) => {
            match kind.as_enum().and_then(|names| names.get_value(*value)) {
                Some(known) => write::string(out, known.name()),
                None => write::number(out, *value),
            };
        }
        Value::Message(value) => write_message(value, out),
        // A test sees to it that the schema has no field of another kind.
        Value::F32(_) | Value::F64(_) | Value::List(_) | Value::Map(_) => out.extend_from_slice(b"null"),
    }
}

/// Whether every field of every message is of a kind this mapping handles.
#[cfg(test)]
pub(super) fn schema_is_covered() -> bool {
    POOL.all_messages().flat_map(|message| message.fields().collect::<Vec<_>>()).all(|field| {
        !field.is_map()
            && matches!(
                field.kind(),
                Kind::Bool
                    | Kind::Int32
                    | Kind::Uint32
                    | Kind::Int64
                    | Kind::Uint64
                    | Kind::String
                    | Kind::Bytes
                    | Kind::Enum(_)
                    | Kind::Message(_)
            )
    })
}
