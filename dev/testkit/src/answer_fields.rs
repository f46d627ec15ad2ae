//! Answers as lists of field paths and values, so that a test can compare two answers that differ
//! in a few known fields.

use anneal_proto::DESCRIPTORS;
use prost::{
    Message as _,
    bytes::Buf as _,
    encoding::{WireType, decode_key, decode_varint},
};
use prost_types::{DescriptorProto, FileDescriptorSet, field_descriptor_proto::Type};

use crate::request_fields::describe_message;

/// Every field of an RPC's answer whose value is not the default, in wire order: the field's path
/// (`conversation.title`) and its value. A field that is a message comes after the fields of that
/// message, with an empty value. Timestamps are left out because they differ between runs.
pub fn answer_fields(rpc: &str, answer: &[u8]) -> Vec<(String, String)> {
    let set = FileDescriptorSet::decode(DESCRIPTORS).expect("descriptors");
    let all: Vec<&DescriptorProto> = set
        .file
        .iter()
        .flat_map(|file| &file.message_type)
        .collect();
    let mut methods = set
        .file
        .iter()
        .flat_map(|file| &file.service)
        .flat_map(|service| &service.method);
    let method = methods
        .find(|method| method.name() == rpc)
        .unwrap_or_else(|| panic!("there is no RPC {rpc}"));
    let mut fields = Vec::new();
    collect_fields(&all, method.output_type(), "", answer, &mut fields);
    fields
}

/// Adds the fields of an encoded message to `fields`, with paths that begin with `prefix`.
fn collect_fields(
    all: &[&DescriptorProto],
    message: &str,
    prefix: &str,
    mut bytes: &[u8],
    fields: &mut Vec<(String, String)>,
) {
    let message = describe_message(all, message);
    while !bytes.is_empty() {
        let (number, wire) = decode_key(&mut bytes).expect("a key");
        let field = message
            .field
            .iter()
            .find(|field| field.number().unsigned_abs() == number);
        let field = field.unwrap_or_else(|| panic!("{} has no field {number}", message.name()));
        let path = if prefix.is_empty() {
            field.name().to_owned()
        } else {
            format!("{prefix}.{}", field.name())
        };
        let value = match wire {
            WireType::Varint => decode_varint(&mut bytes).expect("a number").to_string(),
            WireType::SixtyFourBit => bytes.get_u64_le().to_string(),
            WireType::ThirtyTwoBit => bytes.get_u32_le().to_string(),
            WireType::LengthDelimited => {
                let length = decode_varint(&mut bytes).expect("a length") as usize;
                let (content, rest) = bytes.split_at(length);
                bytes = rest;
                match field.r#type() {
                    Type::Message if field.type_name() == ".google.protobuf.Timestamp" => continue,
                    Type::Message => {
                        collect_fields(all, field.type_name(), &path, content, fields);
                        String::new()
                    }
                    Type::String => String::from_utf8_lossy(content).into_owned(),
                    _ => content.escape_ascii().to_string(),
                }
            }
            WireType::StartGroup | WireType::EndGroup => panic!("{path}: groups are not used"),
        };
        fields.push((path, value));
    }
}
