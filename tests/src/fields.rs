//! Every field of every request, as the descriptors say, and a sound request in which one of them holds something else.

use anneal_proto::DESCRIPTORS;
use prost::Message as _;
use prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};

use crate::sound_request;

/// A field of an RPC's request, or of what lies in it.
#[derive(Clone)]
pub struct Field {
    /// The RPC.
    pub rpc: String,
    /// The way to it, from the request on.
    steps: Vec<Step>,
}

/// A field on the way.
#[derive(Clone)]
struct Step {
    /// The message that it is a field of.
    of: String,
    name: String,
    number: u32,
    kind: Type,
    is_repeated: bool,
}

/// What a field is filled with, as it goes over the wire.
#[derive(Clone)]
pub enum Filling {
    /// A number, a truth or one of an enum.
    Varint(u64),
    /// Four bytes.
    Four([u8; 4]),
    /// Eight bytes.
    Eight([u8; 8]),
    /// A text, bytes or a message.
    Bytes(Vec<u8>),
    /// Says that there are more bytes than there are.
    Cut,
}

impl Field {
    /// What it holds.
    pub fn kind(&self) -> Type {
        self.last().kind
    }

    /// Whether it holds any number of them.
    pub fn is_repeated(&self) -> bool {
        self.last().is_repeated
    }

    /// Its own name.
    pub fn name(&self) -> &str {
        &self.last().name
    }

    /// `conversation.policy.model`.
    pub fn path(&self) -> String {
        self.steps.iter().map(|step| step.name.as_str()).collect::<Vec<_>>().join(".")
    }

    /// Whether a refusal of this field blames what is on the way to it.
    pub fn is_blamed_as(&self, blamed: &str) -> bool {
        self.steps.iter().any(|step| blamed.contains(&step.name))
    }

    fn last(&self) -> &Step {
        self.steps.last().expect("a field has a way to it")
    }

    /// A sound request of its RPC with the field so filled: of two values of a field the last one counts, and messages of
    /// one field are one message.
    pub fn filled(&self, filling: &Filling, id: &str, request: &str) -> Vec<u8> {
        self.filled_with(std::slice::from_ref(filling), id, request)
    }

    /// The same with these values one after the other, as a repeated field has them.
    pub fn filled_with(&self, fillings: &[Filling], id: &str, request: &str) -> Vec<u8> {
        let mut bytes = fillings.iter().flat_map(|filling| field(self.last().number, filling)).collect::<Vec<_>>();
        for (place, step) in self.steps.iter().enumerate().rev().skip(1) {
            let next = &self.steps[place + 1];
            let beside = beside(&next.of, &self.steps[place + 1..]);
            bytes = field(step.number, &Filling::Bytes([beside, bytes].concat()));
        }
        [sound_request(&self.rpc, id, request), bytes].concat()
    }
}

/// What a message must hold beside the field on the way, so that the field is what it is refused for.
fn beside(message: &str, way: &[Step]) -> Vec<u8> {
    let text = |number, value: &str| field(number, &Filling::Bytes(value.as_bytes().to_vec()));
    let next = way[0].name.as_str();
    match message {
        "NewMessage" => {
            let role = match way.get(1).map_or("", |step| step.name.as_str()) {
                "tool_use" | "reasoning" => 2,
                "tool_result" => 3,
                _ => 1,
            };
            let said = if next == "parts" { Vec::new() } else { field(2, &Filling::Bytes(text(1, "\x0a\x01a"))) };
            [field(1, &Filling::Varint(role)), said].concat()
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

/// A field with its tag.
pub fn field(number: u32, filling: &Filling) -> Vec<u8> {
    let tag = |wire: u32| varint(u64::from(number << 3 | wire));
    match filling {
        Filling::Varint(value) => [tag(0), varint(*value)].concat(),
        Filling::Eight(bytes) => [tag(1), bytes.to_vec()].concat(),
        Filling::Bytes(bytes) => [tag(2), varint(bytes.len() as u64), bytes.clone()].concat(),
        Filling::Cut => [tag(2), vec![127, b'a']].concat(),
        Filling::Four(bytes) => [tag(5), bytes.to_vec()].concat(),
    }
}

/// Every field of every RPC's request, of the messages in it, and so on.
pub fn every_field() -> Vec<Field> {
    let set = FileDescriptorSet::decode(DESCRIPTORS).expect("descriptors");
    let all: Vec<&DescriptorProto> = set.file.iter().flat_map(|file| &file.message_type).collect();
    let ours = set.file.iter().filter(|file| file.package() == "anneal.v1");
    let mut fields = Vec::new();
    for method in ours.flat_map(|file| &file.service).flat_map(|service| &service.method) {
        descend(&all, method.input_type(), &Field { rpc: method.name().to_owned(), steps: Vec::new() }, &mut fields);
    }
    fields
}

fn descend(all: &[&DescriptorProto], message: &str, to: &Field, found: &mut Vec<Field>) {
    let message = described(all, message);
    for one in &message.field {
        let mut field = to.clone();
        field.steps.push(step(message, one));
        if one.r#type() == Type::Message {
            descend(all, one.type_name(), &field, found);
        }
        found.push(field);
    }
}

fn step(message: &DescriptorProto, field: &FieldDescriptorProto) -> Step {
    Step {
        of: message.name().to_owned(),
        name: field.name().to_owned(),
        number: field.number().unsigned_abs(),
        kind: field.r#type(),
        is_repeated: field.label() == Label::Repeated,
    }
}

/// The descriptor of a message, by the name that descriptors call it by.
pub(crate) fn described<'m>(all: &[&'m DescriptorProto], name: &str) -> &'m DescriptorProto {
    let path = name.trim_start_matches(".anneal.v1.").trim_start_matches(".google.protobuf.");
    find(all, path).unwrap_or_else(|| panic!("no descriptor of {name}"))
}

pub(crate) fn find<'m>(all: &[&'m DescriptorProto], path: &str) -> Option<&'m DescriptorProto> {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let found = all.iter().copied().find(|message| message.name() == first)?;
    if rest.is_empty() { Some(found) } else { find(&found.nested_type.iter().collect::<Vec<_>>(), rest) }
}
