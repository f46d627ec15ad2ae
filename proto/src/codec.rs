//! The codec of the services. Before prost decodes a request, the codec counts its fields and the
//! entries of its lists and maps, and refuses a request with too many: an entry of two bytes takes
//! a hundred bytes of memory once it is decoded. Buffers begin small and grow once, to the size of
//! their message.

use std::{
    cell::Cell,
    collections::HashMap,
    fmt::{self, Display},
    marker::PhantomData,
    sync::LazyLock,
};

use prost::{
    Message, Name,
    bytes::Buf,
    encoding::{WireType, decode_key, decode_varint},
};
use prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};
use tonic::{
    Status,
    codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};
use tonic_prost::ProstEncoder;

/// Most entries in all lists and maps of one request, including nested ones. The largest append
/// that the other limits allow (100 messages of 256 parts and 32 metadata keys each) has 28,900
/// entries, in addition to the media of tool results.
pub const ENTRIES_PER_REQUEST: usize = 65_536;
/// Most fields in one request, including nested ones. The largest append without media has two
/// thirds of this number.
pub const FIELDS_PER_REQUEST: usize = 131_072;
/// Bytes of memory that are charged for one entry, regardless of its size on the wire.
pub const ENTRY_BYTES: u64 = 128;

/// First size of the buffer that a message is received in. A chat message with its ids fits. For a
/// larger message the buffer grows once its length is known. tonic's default is 8 KiB for each call.
const RECEIVE_BUFFER_BYTES: usize = 1024;
/// First size of the buffer that a message is encoded in. Most answers and events fit. The buffer
/// exists as long as its stream; tonic's default is 8 KiB.
const SEND_BUFFER_BYTES: usize = 256;
/// Messages of a stream that are ready at the same time are sent together up to this size: tonic's
/// default.
const YIELD_BYTES: usize = 32 * 1024;

tokio::task_local! {
    /// Number of entries in the request that this task decoded last. The server charges their
    /// memory to the request.
    pub static ENTRIES: Cell<usize>;
}

/// Deepest nesting of messages that is counted; equal to prost's limit.
const DEPTH: usize = 100;

/// Why a request is refused before it is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Excess {
    /// It has more than [`ENTRIES_PER_REQUEST`] entries.
    Entries,
    /// It has more than [`FIELDS_PER_REQUEST`] fields.
    Fields,
}

impl Excess {
    /// All variants.
    pub const ALL: [Self; 2] = [Self::Entries, Self::Fields];

    /// The limit, and the plural noun of the counted things.
    pub const fn limit(self) -> (usize, &'static str) {
        match self {
            Self::Entries => (ENTRIES_PER_REQUEST, "entries of lists and maps"),
            Self::Fields => (FIELDS_PER_REQUEST, "fields"),
        }
    }
}

impl Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (most, what) = self.limit();
        write!(f, "more than {most} {what}")
    }
}

/// Encodes `T` and decodes `U` with prost, and limits the entries and fields of requests.
#[derive(Debug)]
pub struct BoundedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for BoundedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for BoundedCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Name + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = SizedEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        let settings = BufferSettings::new(SEND_BUFFER_BYTES, YIELD_BYTES);
        SizedEncoder(ProstEncoder::new(settings))
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder(PhantomData)
    }
}

/// Encodes `T` into a buffer that has room for all of it. A buffer that grows while a message is
/// encoded is copied several times.
#[derive(Debug)]
pub struct SizedEncoder<T>(ProstEncoder<T>);

impl<T: Message> Encoder for SizedEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buf.reserve(item.encoded_len());
        self.0.encode(item, buf)
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0.buffer_settings()
    }
}

/// Decodes `U`. Refuses a request with too many entries or fields.
#[derive(Debug)]
pub struct BoundedDecoder<U>(PhantomData<U>);

impl<U: Message + Name + Default> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // Only requests are counted: answers come from a trusted server.
        if let Some(message_type) = MESSAGE_TYPES.requests.get(U::NAME) {
            let mut remaining = Remaining::default();
            // tonic's buffer is contiguous, so the chunk is the whole request.
            count(*message_type, buf.chunk(), &mut remaining, DEPTH)
                .map_err(|error| Status::out_of_range(error.to_string()))?;
            // The value is set only in a server's task. Elsewhere (in tests, for example) the
            // task-local does not exist and the error is ignored.
            let _ =
                ENTRIES.try_with(|entries| entries.set(ENTRIES_PER_REQUEST - remaining.entries));
        }
        // Same code and text as tonic's own decoder.
        U::decode(buf).map(Some).map_err(|error| {
            Status::internal(format!("failed to decode Protobuf message: {error}"))
        })
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(RECEIVE_BUFFER_BYTES, YIELD_BYTES)
    }
}

/// Numbers of entries and fields that a request may still have.
#[derive(Debug, PartialEq, Eq)]
struct Remaining {
    entries: usize,
    fields: usize,
}

impl Default for Remaining {
    fn default() -> Self {
        Self {
            entries: ENTRIES_PER_REQUEST,
            fields: FIELDS_PER_REQUEST,
        }
    }
}

/// Parses the descriptors of all message types now, so that the first request does not wait for it.
pub fn prepare() {
    LazyLock::force(&MESSAGE_TYPES);
}

/// Subtracts the fields and entries of a message, nested ones included, from `remaining`. Stops
/// without an error at malformed bytes: prost refuses these.
fn count(
    message_type: usize,
    mut bytes: &[u8],
    remaining: &mut Remaining,
    depth: usize,
) -> Result<(), Excess> {
    let fields = &MESSAGE_TYPES.messages[message_type];
    while let Ok((number, wire)) = decode_key(&mut bytes) {
        let field = fields.get(number as usize).copied().flatten();
        let mut entries = usize::from(field.is_some_and(|field| field.is_repeated));
        match wire {
            WireType::Varint => {
                if decode_varint(&mut bytes).is_err() {
                    return Ok(());
                }
            }
            WireType::ThirtyTwoBit => bytes = bytes.get(4..).unwrap_or_default(),
            WireType::SixtyFourBit => bytes = bytes.get(8..).unwrap_or_default(),
            WireType::LengthDelimited => {
                let length = decode_varint(&mut bytes)
                    .ok()
                    .and_then(|length| usize::try_from(length).ok());
                let Some((inner, rest)) = length.and_then(|length| bytes.split_at_checked(length))
                else {
                    return Ok(());
                };
                bytes = rest;
                match field.map(|field| field.content) {
                    Some(FieldContent::Message(inner_type)) if depth > 0 => {
                        count(inner_type, inner, remaining, depth - 1)?;
                    }
                    // A packed list has at most one number per byte.
                    Some(FieldContent::Number) => entries *= inner.len(),
                    _ => {}
                }
            }
            // proto3 has no groups. Prost skips unknown groups; their fields are counted here.
            WireType::StartGroup | WireType::EndGroup => {}
        }
        remaining.fields = remaining.fields.checked_sub(1).ok_or(Excess::Fields)?;
        remaining.entries = remaining
            .entries
            .checked_sub(entries)
            .ok_or(Excess::Entries)?;
    }
    Ok(())
}

/// Type of a field, as far as counting needs it.
#[derive(Debug, Clone, Copy)]
struct Field {
    is_repeated: bool,
    content: FieldContent,
}

/// The content of a field, or of each entry of a list.
#[derive(Debug, Clone, Copy)]
enum FieldContent {
    /// The message with this index in `MessageTypes::messages`.
    Message(usize),
    /// A number, a boolean or an enum.
    Number,
    /// A string or bytes.
    Text,
}

/// The message types of all descriptors.
struct MessageTypes {
    /// For each message type its fields, indexed by field number.
    messages: Vec<Vec<Option<Field>>>,
    /// Indexes into `messages` of the request types of all RPCs, by type name.
    requests: HashMap<String, usize>,
}

static MESSAGE_TYPES: LazyLock<MessageTypes> = LazyLock::new(|| {
    let set = FileDescriptorSet::decode(crate::DESCRIPTORS).expect("build.rs has encoded it");
    let mut found: Vec<(String, &DescriptorProto)> = Vec::new();
    for file in &set.file {
        let mut unvisited: Vec<_> = file
            .message_type
            .iter()
            .map(|message| (format!(".{}", file.package()), message))
            .collect();
        while let Some((within, message)) = unvisited.pop() {
            let name = format!("{within}.{}", message.name());
            unvisited.extend(
                message
                    .nested_type
                    .iter()
                    .map(|message| (name.clone(), message)),
            );
            found.push((name, message));
        }
    }
    let indexes: HashMap<&str, usize> = found
        .iter()
        .enumerate()
        .map(|(index, (name, _))| (&**name, index))
        .collect();
    let messages = found.iter().map(|(_, message)| {
        let highest_number = message
            .field
            .iter()
            .map(FieldDescriptorProto::number)
            .max()
            .unwrap_or_default();
        let mut fields = vec![None; highest_number as usize + 1];
        for field in &message.field {
            let content = match field.r#type() {
                Type::Message => FieldContent::Message(indexes[field.type_name()]),
                Type::String | Type::Bytes => FieldContent::Text,
                _ => FieldContent::Number,
            };
            fields[field.number() as usize] = Some(Field {
                is_repeated: field.label() == Label::Repeated,
                content,
            });
        }
        fields
    });
    let methods = set
        .file
        .iter()
        .flat_map(|file| &file.service)
        .flat_map(|service| &service.method);
    let requests = methods.map(|method| {
        (
            method
                .input_type()
                .rsplit('.')
                .next()
                .unwrap_or_default()
                .to_owned(),
            indexes[method.input_type()],
        )
    });
    MessageTypes {
        messages: messages.collect(),
        requests: requests.collect(),
    }
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1 as pb;

    fn count_entries(request: &pb::AppendMessagesRequest) -> Result<usize, Excess> {
        let mut remaining = Remaining::default();
        count(
            MESSAGE_TYPES.requests["AppendMessagesRequest"],
            &request.encode_to_vec(),
            &mut remaining,
            DEPTH,
        )?;
        Ok(ENTRIES_PER_REQUEST - remaining.entries)
    }

    #[test]
    fn entries_of_all_lists_and_maps_count_however_deep() {
        let media = vec![pb::MediaPart::default(); 3];
        let result = pb::ToolResultPart {
            media,
            text: "x".repeat(1_000),
            ..Default::default()
        };
        let part = pb::Part {
            part: Some(pb::part::Part::ToolResult(result)),
        };
        let metadata = [("a".to_owned(), "b".to_owned())].into();
        let message = pb::NewMessage {
            parts: vec![part; 2],
            metadata,
            ..Default::default()
        };
        let request = pb::AppendMessagesRequest {
            messages: vec![message; 5],
            ..Default::default()
        };
        // Of each of five messages: itself, a metadata key, and two parts with three media each.
        assert_eq!(count_entries(&request), Ok(5 * (1 + 1 + 2 * (1 + 3))));
    }

    #[test]
    fn one_entry_more_than_a_request_may_have_is_refused() {
        let messages = vec![pb::NewMessage::default(); ENTRIES_PER_REQUEST];
        let mut request = pb::AppendMessagesRequest {
            messages,
            ..Default::default()
        };
        assert_eq!(count_entries(&request), Ok(ENTRIES_PER_REQUEST));
        request.messages.push(pb::NewMessage::default());
        assert_eq!(count_entries(&request), Err(Excess::Entries));
    }

    #[test]
    fn unknown_fields_count_as_fields() {
        let mut remaining = Remaining {
            fields: 3,
            ..Remaining::default()
        };
        // Field 127, which the request does not have: a text of 0 bytes.
        let field = [0xfa, 0x07, 0x00];
        assert_eq!(
            count(
                MESSAGE_TYPES.requests["AppendMessagesRequest"],
                &field.repeat(3),
                &mut remaining,
                DEPTH
            ),
            Ok(())
        );
        assert_eq!(
            count(
                MESSAGE_TYPES.requests["AppendMessagesRequest"],
                &field,
                &mut remaining,
                DEPTH
            ),
            Err(Excess::Fields)
        );
    }

    #[test]
    fn fields_after_an_unknown_group_are_counted() {
        // A group with field number 127, which the request does not have, around a number.
        let mut bytes = vec![0xfb, 0x07, 0x08, 0x01, 0xfc, 0x07];
        pb::AppendMessagesRequest {
            messages: vec![pb::NewMessage::default(); 3],
            ..Default::default()
        }
        .encode(&mut bytes)
        .expect("a vector has no size limit");
        assert_eq!(
            pb::AppendMessagesRequest::decode(&*bytes)
                .expect("prost skips groups")
                .messages
                .len(),
            3
        );
        let mut remaining = Remaining {
            entries: 3,
            ..Remaining::default()
        };
        assert_eq!(
            count(
                MESSAGE_TYPES.requests["AppendMessagesRequest"],
                &bytes,
                &mut remaining,
                DEPTH
            ),
            Ok(())
        );
        assert_eq!(remaining.entries, 0);
    }
}
