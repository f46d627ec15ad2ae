//! Every field of every request, from the descriptors, and valid requests in which one field has a
//! given value.

use anneal_proto::DESCRIPTORS;
use prost::Message as _;
use prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};

use crate::{pb, valid_request};

/// A field of an RPC's request, at any depth.
#[derive(Clone)]
pub struct Field {
    /// The name of the RPC.
    pub rpc: String,
    /// The path to the field, from the request on.
    steps: Vec<Step>,
}

/// A field on the path to another field.
#[derive(Clone)]
struct Step {
    /// The name of the message type that has the field.
    message_type: String,
    name: String,
    number: u32,
    kind: Type,
    is_repeated: bool,
}

/// A value of a field, as it is encoded on the wire.
#[derive(Clone)]
pub enum FieldValue {
    /// An integer, a boolean or an enum value.
    Varint(u64),
    /// A fixed 32-bit value.
    Four([u8; 4]),
    /// A fixed 64-bit value.
    Eight([u8; 8]),
    /// A string, bytes or a message.
    Bytes(Vec<u8>),
    /// A string whose length exceeds the remaining bytes.
    Cut,
}

impl Field {
    /// The field's type.
    pub fn kind(&self) -> Type {
        self.last().kind
    }

    /// Whether the field is repeated.
    pub fn is_repeated(&self) -> bool {
        self.last().is_repeated
    }

    /// The field's own name.
    pub fn name(&self) -> &str {
        &self.last().name
    }

    /// The path with dots: `conversation.policy.model`.
    pub fn path(&self) -> String {
        self.steps
            .iter()
            .map(|step| step.name.as_str())
            .collect::<Vec<_>>()
            .join(".")
    }

    /// Whether `blamed`, the field in a refusal, contains the name of this field or of a field on
    /// the path to it.
    pub fn is_blamed_as(&self, blamed: &str) -> bool {
        self.steps.iter().any(|step| blamed.contains(&step.name))
    }

    fn last(&self) -> &Step {
        self.steps.last().expect("a path has at least one step")
    }

    /// A valid request of the RPC with this value in the field, for the conversation `id` and with
    /// the request id `request`. The value is appended to a valid request: on the wire the last
    /// value of a field counts, and several messages of one field are merged.
    pub fn filled(&self, filling: &FieldValue, id: &str, request: &str) -> Vec<u8> {
        self.filled_with(std::slice::from_ref(filling), id, request)
    }

    /// A valid request of the RPC with several values in the field, as a repeated field has them.
    pub fn filled_with(&self, fillings: &[FieldValue], id: &str, request: &str) -> Vec<u8> {
        let mut bytes = fillings
            .iter()
            .flat_map(|filling| field(self.last().number, filling))
            .collect::<Vec<_>>();
        // From the inside out: encodes each message on the path with the bytes so far as its field.
        for (place, step) in self.steps.iter().enumerate().rev().skip(1) {
            let next = &self.steps[place + 1];
            let siblings = sibling_fields(&next.message_type, &self.steps[place + 1..]);
            bytes = field(step.number, &FieldValue::Bytes([siblings, bytes].concat()));
        }
        [valid_request(&self.rpc, id, request), bytes].concat()
    }
}

/// The other fields that a message on the path needs to be valid, so that the request can be
/// refused only because of the field.
fn sibling_fields(message: &str, path: &[Step]) -> Vec<u8> {
    let text = |number, value: &str| field(number, &FieldValue::Bytes(value.as_bytes().to_vec()));
    let next = path[0].name.as_str();
    match message {
        "NewMessage" => {
            // Only an assistant may have tool calls and reasoning, and only a tool results.
            let role = match path.get(1).map_or("", |step| step.name.as_str()) {
                "tool_use" | "reasoning" => pb::Role::Assistant,
                "tool_result" => pb::Role::Tool,
                _ => pb::Role::User,
            };
            // Unless the field is in `parts`, the message gets one part with the text "a": the
            // bytes are those of a TextPart whose first field is "a".
            let parts = if next == "parts" {
                Vec::new()
            } else {
                field(2, &FieldValue::Bytes(text(1, "\x0a\x01a")))
            };
            [field(1, &FieldValue::Varint(role as u64)), parts].concat()
        }
        "ToolUsePart" => [text(1, "c"), text(2, "look")].concat(),
        "ToolResultPart" => text(1, "c"),
        "MediaPart" => [text(1, "s3://a"), text(2, "image/png")].concat(),
        "Tool" => text(1, "t"),
        _ => Vec::new(),
    }
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 127 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// Encodes a field with its tag.
pub fn field(number: u32, filling: &FieldValue) -> Vec<u8> {
    let tag = |wire: u32| varint(u64::from(number << 3 | wire));
    match filling {
        FieldValue::Varint(value) => [tag(0), varint(*value)].concat(),
        FieldValue::Eight(bytes) => [tag(1), bytes.to_vec()].concat(),
        FieldValue::Bytes(bytes) => [tag(2), varint(bytes.len() as u64), bytes.clone()].concat(),
        FieldValue::Cut => [tag(2), vec![127, b'a']].concat(),
        FieldValue::Four(bytes) => [tag(5), bytes.to_vec()].concat(),
    }
}

/// Every field of every RPC's request, at any depth.
pub fn every_field() -> Vec<Field> {
    let set = FileDescriptorSet::decode(DESCRIPTORS).expect("descriptors");
    let all: Vec<&DescriptorProto> = set
        .file
        .iter()
        .flat_map(|file| &file.message_type)
        .collect();
    let ours = set.file.iter().filter(|file| file.package() == "anneal.v1");
    let mut fields = Vec::new();
    for method in ours
        .flat_map(|file| &file.service)
        .flat_map(|service| &service.method)
    {
        collect_fields(
            &all,
            method.input_type(),
            &Field {
                rpc: method.name().to_owned(),
                steps: Vec::new(),
            },
            &mut fields,
        );
    }
    fields
}

/// Adds the fields of this message, and of the messages within it, to `found`.
fn collect_fields(all: &[&DescriptorProto], message: &str, parent: &Field, found: &mut Vec<Field>) {
    let message = describe_message(all, message);
    for one in &message.field {
        let mut field = parent.clone();
        field.steps.push(step(message, one));
        if one.r#type() == Type::Message {
            collect_fields(all, one.type_name(), &field, found);
        }
        found.push(field);
    }
}

fn step(message: &DescriptorProto, field: &FieldDescriptorProto) -> Step {
    Step {
        message_type: message.name().to_owned(),
        name: field.name().to_owned(),
        number: field.number().unsigned_abs(),
        kind: field.r#type(),
        is_repeated: field.label() == Label::Repeated,
    }
}

/// The descriptor of a message, by its full name. Panics if there is none.
pub(crate) fn describe_message<'m>(all: &[&'m DescriptorProto], name: &str) -> &'m DescriptorProto {
    let path = name
        .trim_start_matches(".anneal.v1.")
        .trim_start_matches(".google.protobuf.");
    find_message(all, path).unwrap_or_else(|| panic!("no descriptor of {name}"))
}

/// The descriptor of a message, by its name without the package. Names of nested messages have
/// dots.
pub(crate) fn find_message<'m>(
    all: &[&'m DescriptorProto],
    path: &str,
) -> Option<&'m DescriptorProto> {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let found = all
        .iter()
        .copied()
        .find(|message| message.name() == first)?;
    if rest.is_empty() {
        Some(found)
    } else {
        find_message(&found.nested_type.iter().collect::<Vec<_>>(), rest)
    }
}
