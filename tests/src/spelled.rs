//! Answers spelled out field by field, as the descriptors name them: to compare two in which a few things differ by nature.

use anneal_proto::DESCRIPTORS;
use prost::{
    Message as _,
    bytes::Buf as _,
    encoding::{WireType, decode_key, decode_varint},
};
use prost_types::{DescriptorProto, FileDescriptorSet, field_descriptor_proto::Type};

use crate::fields::described;

/// Every field of an answer of this RPC that is not its default, in the order of the wire: the way to it
/// (`conversation.title`), and what it holds. Points in time have nothing to compare and are left out.
pub fn spelled_out(rpc: &str, answer: &[u8]) -> Vec<(String, String)> {
    let set = FileDescriptorSet::decode(DESCRIPTORS).expect("descriptors");
    let all: Vec<&DescriptorProto> = set.file.iter().flat_map(|file| &file.message_type).collect();
    let mut methods = set.file.iter().flat_map(|file| &file.service).flat_map(|service| &service.method);
    let method = methods.find(|method| method.name() == rpc).unwrap_or_else(|| panic!("there is no {rpc}"));
    let mut spelled = Vec::new();
    spell(&all, method.output_type(), "", answer, &mut spelled);
    spelled
}

fn spell(all: &[&DescriptorProto], message: &str, way: &str, mut bytes: &[u8], spelled: &mut Vec<(String, String)>) {
    let message = described(all, message);
    while !bytes.is_empty() {
        let (number, wire) = decode_key(&mut bytes).expect("a key");
        let field = message.field.iter().find(|field| field.number().unsigned_abs() == number);
        let field = field.unwrap_or_else(|| panic!("{} has no field {number}", message.name()));
        let path = if way.is_empty() { field.name().to_owned() } else { format!("{way}.{}", field.name()) };
        let held = match wire {
            WireType::Varint => decode_varint(&mut bytes).expect("a number").to_string(),
            WireType::SixtyFourBit => bytes.get_u64_le().to_string(),
            WireType::ThirtyTwoBit => bytes.get_u32_le().to_string(),
            WireType::LengthDelimited => {
                let length = decode_varint(&mut bytes).expect("a length") as usize;
                let (held, rest) = bytes.split_at(length);
                bytes = rest;
                match field.r#type() {
                    Type::Message if field.type_name() == ".google.protobuf.Timestamp" => continue,
                    Type::Message => {
                        spell(all, field.type_name(), &path, held, spelled);
                        String::new()
                    }
                    Type::String => String::from_utf8_lossy(held).into_owned(),
                    _ => held.escape_ascii().to_string(),
                }
            }
            WireType::StartGroup | WireType::EndGroup => panic!("{path}: nobody uses groups"),
        };
        spelled.push((path, held));
    }
}
