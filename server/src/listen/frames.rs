//! What a client of HTTP/2 has a connection keep in memory, by the heads of its frames as they come by: requests, all of which
//! stand there before any of them is answered, and what is kept of a frame until it has come whole.

/// Bytes of the preface of HTTP/2, before the first frame.
pub(super) const PREFACE_BYTES: usize = 24;
/// Bytes of a frame's head: length (3), kind, flags, stream (4).
const HEAD_BYTES: usize = 9;
/// The kind of frame that begins a request, and its flag that says that nothing more of the request's head comes.
const HEADERS: u8 = 1;
const END_HEADERS: u8 = 4;
/// Bytes of a frame for which the connection's buffer need not grow.
const SMALL_BYTES: usize = 4 * 1024;

/// What some bytes of a client hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Frames {
    /// Requests that begin; trailers, which no gRPC client sends, count as one.
    pub(super) requests: u32,
    /// Whether a frame, or a request's head, begins that may take more memory than a small one.
    pub(super) has_large: bool,
}

/// Where a client is between two frames.
pub(super) struct FrameCounter {
    /// Bytes until the next frame's head.
    skip: usize,
    head: [u8; HEAD_BYTES],
    /// Bytes of that head that have come.
    come: usize,
}

impl FrameCounter {
    /// A client that has sent nothing yet.
    pub(super) const fn new() -> Self {
        Self { skip: PREFACE_BYTES, head: [0; HEAD_BYTES], come: 0 }
    }

    /// The frames that begin in these bytes.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Frames {
        let mut frames = Frames::default();
        while !bytes.is_empty() {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len());
                self.skip -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let more = (HEAD_BYTES - self.come).min(bytes.len());
            self.head[self.come..self.come + more].copy_from_slice(&bytes[..more]);
            self.come += more;
            bytes = &bytes[more..];
            if self.come == HEAD_BYTES {
                let [high, middle, low, kind, flags, ..] = self.head;
                self.skip = u32::from_be_bytes([0, high, middle, low]) as usize;
                self.come = 0;
                let is_half_a_head = kind == HEADERS && flags & END_HEADERS == 0;
                frames.requests += u32::from(kind == HEADERS);
                frames.has_large |= is_half_a_head || self.skip > SMALL_BYTES;
            }
        }
        frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_however_the_bytes_come() {
        let mut sent = vec![b'P'; PREFACE_BYTES];
        // Settings, a request with a head of 300 bytes, its body, and another request.
        for (length, kind) in [(0_u32, 4), (300, HEADERS), (5, 0), (2, HEADERS)] {
            sent.extend(&length.to_be_bytes()[1..]);
            sent.extend([kind, END_HEADERS, 0, 0, 0, 1]);
            sent.extend(vec![HEADERS; length as usize]);
        }
        for size in [1, 2, 7, 9, 100, sent.len()] {
            let mut frames = FrameCounter::new();
            let read: Vec<Frames> = sent.chunks(size).map(|bytes| frames.read(bytes)).collect();
            assert_eq!(read.iter().map(|frames| frames.requests).sum::<u32>(), 2, "in chunks of {size}");
            assert!(!read.iter().any(|frames| frames.has_large), "in chunks of {size}");
        }
        let mut frames = FrameCounter::new();
        frames.read(&[b'P'; PREFACE_BYTES]);
        let half_a_head = frames.read(&[0, 0, 1, HEADERS, 0, 0, 0, 0, 1, b'x']);
        assert_eq!(half_a_head, Frames { requests: 1, has_large: true });
        assert_eq!(frames.read(&[0, 0x20, 0, 0, 0, 0, 0, 0, 1]), Frames { requests: 0, has_large: true });
    }
}
