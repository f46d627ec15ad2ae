//! Counts what an HTTP/2 client makes a connection hold in memory, from the headers of its frames:
//! the requests, which all exist before the first is answered, and the buffer for a frame that has
//! not arrived completely.

/// Length of the HTTP/2 connection preface, before the first frame.
pub(super) const PREFACE_BYTES: usize = 24;
/// Length of a frame header: length (3 bytes), type, flags, stream id (4 bytes).
const HEAD_BYTES: usize = 9;
/// Type of the frame that begins a request.
const HEADERS: u8 = 1;
/// Its flag: no CONTINUATION frame follows.
const END_HEADERS: u8 = 4;
/// Frames up to this size do not make the connection's buffer grow.
const SMALL_FRAME_BYTES: usize = 4 * 1024;

/// The frames that begin in some bytes of a client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FrameCounts {
    /// Requests that begin. Trailers count as one, but gRPC clients send none.
    pub(super) requests: u32,
    /// Whether a frame above [`SMALL_FRAME_BYTES`] begins, or a header block that continues in
    /// further frames.
    pub(super) has_large: bool,
}

/// Position of the client in its frames.
pub(super) struct FrameCounter {
    /// Bytes until the next frame header.
    skip: usize,
    head: [u8; HEAD_BYTES],
    /// Bytes of that header that have arrived.
    head_bytes: usize,
}

impl FrameCounter {
    /// At the start of a connection.
    pub(super) const fn new() -> Self {
        Self {
            skip: PREFACE_BYTES,
            head: [0; HEAD_BYTES],
            head_bytes: 0,
        }
    }

    /// Counts the frames that begin in these bytes.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> FrameCounts {
        let mut frames = FrameCounts::default();
        while !bytes.is_empty() {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len());
                self.skip -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let more = (HEAD_BYTES - self.head_bytes).min(bytes.len());
            self.head[self.head_bytes..self.head_bytes + more].copy_from_slice(&bytes[..more]);
            self.head_bytes += more;
            bytes = &bytes[more..];
            if self.head_bytes == HEAD_BYTES {
                let [high, middle, low, kind, flags, ..] = self.head;
                self.skip = u32::from_be_bytes([0, high, middle, low]) as usize;
                self.head_bytes = 0;
                let continues_head = kind == HEADERS && flags & END_HEADERS == 0;
                frames.requests += u32::from(kind == HEADERS);
                frames.has_large |= continues_head || self.skip > SMALL_FRAME_BYTES;
            }
        }
        frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_however_the_bytes_are_split() {
        let mut sent = vec![b'P'; PREFACE_BYTES];
        // SETTINGS, a request with 300 bytes of headers, its body, and another request.
        for (length, kind) in [(0_u32, 4), (300, HEADERS), (5, 0), (2, HEADERS)] {
            sent.extend(&length.to_be_bytes()[1..]);
            sent.extend([kind, END_HEADERS, 0, 0, 0, 1]);
            sent.extend(vec![HEADERS; length as usize]);
        }
        for size in [1, 2, 7, 9, 100, sent.len()] {
            let mut frames = FrameCounter::new();
            let read: Vec<FrameCounts> =
                sent.chunks(size).map(|bytes| frames.read(bytes)).collect();
            assert_eq!(
                read.iter().map(|frames| frames.requests).sum::<u32>(),
                2,
                "in chunks of {size}"
            );
            assert!(
                !read.iter().any(|frames| frames.has_large),
                "in chunks of {size}"
            );
        }
        let mut frames = FrameCounter::new();
        frames.read(&[b'P'; PREFACE_BYTES]);
        let unfinished_head = frames.read(&[0, 0, 1, HEADERS, 0, 0, 0, 0, 1, b'x']);
        assert_eq!(
            unfinished_head,
            FrameCounts {
                requests: 1,
                has_large: true
            }
        );
        assert_eq!(
            frames.read(&[0, 0x20, 0, 0, 0, 0, 0, 0, 1]),
            FrameCounts {
                requests: 0,
                has_large: true
            }
        );
    }
}
