//! Reads the headers of the frames that an HTTP/2 client sends, to know what its connection holds
//! in memory: requests, which take memory before they are answered, and the buffer for a frame that
//! has not arrived completely.

/// Length of the HTTP/2 connection preface, before the first frame.
pub(super) const PREFACE_BYTES: usize = 24;
/// Length of a frame header: length (3 bytes), type, flags, stream id (4 bytes).
const HEADER_BYTES: usize = 9;
/// Type of the frame that begins a request.
const HEADERS: u8 = 1;
/// Flag of a HEADERS frame: no CONTINUATION frame follows.
const END_HEADERS: u8 = 4;
/// Frames up to this size do not make the connection's buffer grow.
const SMALL_FRAME_BYTES: usize = 4 * 1024;

/// Counts of the frames that begin in the bytes of one read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FrameCounts {
    /// Requests that begin. Trailers count as one, but gRPC clients send none.
    pub(super) requests: u32,
    /// Whether a frame above [`SMALL_FRAME_BYTES`] begins, or a header block that continues in
    /// further frames.
    pub(super) has_large: bool,
}

/// Finds the frame headers in what a client sends. A header may be split over several reads.
pub(super) struct FrameCounter {
    /// Bytes until the next frame header.
    skip: usize,
    /// The next frame header, as far as it has arrived.
    header: [u8; HEADER_BYTES],
    /// Bytes of `header` that have arrived.
    header_bytes: usize,
}

impl FrameCounter {
    /// A counter for a new connection.
    pub(super) const fn new() -> Self {
        Self {
            skip: PREFACE_BYTES,
            header: [0; HEADER_BYTES],
            header_bytes: 0,
        }
    }

    /// Counts the frames that begin in these bytes.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> FrameCounts {
        let mut counts = FrameCounts::default();
        while !bytes.is_empty() {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len());
                self.skip -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let more = (HEADER_BYTES - self.header_bytes).min(bytes.len());
            self.header[self.header_bytes..self.header_bytes + more]
                .copy_from_slice(&bytes[..more]);
            self.header_bytes += more;
            bytes = &bytes[more..];
            if self.header_bytes == HEADER_BYTES {
                let [high, middle, low, kind, flags, ..] = self.header;
                self.skip = u32::from_be_bytes([0, high, middle, low]) as usize;
                self.header_bytes = 0;
                let continues_header_block = kind == HEADERS && flags & END_HEADERS == 0;
                counts.requests += u32::from(kind == HEADERS);
                counts.has_large |= continues_header_block || self.skip > SMALL_FRAME_BYTES;
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_however_the_bytes_are_split_and_large_frames_are_found() {
        let mut sent = vec![b'P'; PREFACE_BYTES];
        // SETTINGS, a request with 300 bytes of headers, its body, and another request.
        for (length, kind) in [(0_u32, 4), (300, HEADERS), (5, 0), (2, HEADERS)] {
            sent.extend(&length.to_be_bytes()[1..]);
            sent.extend([kind, END_HEADERS, 0, 0, 0, 1]);
            // The content looks like frame headers, but must not be taken for any.
            sent.extend(vec![HEADERS; length as usize]);
        }
        for size in [1, 2, 7, 9, 100, sent.len()] {
            let mut counter = FrameCounter::new();
            let counts: Vec<FrameCounts> =
                sent.chunks(size).map(|bytes| counter.read(bytes)).collect();
            assert_eq!(
                counts.iter().map(|counts| counts.requests).sum::<u32>(),
                2,
                "in chunks of {size}"
            );
            assert!(
                !counts.iter().any(|counts| counts.has_large),
                "in chunks of {size}"
            );
        }
        let mut counter = FrameCounter::new();
        counter.read(&[b'P'; PREFACE_BYTES]);
        let unfinished_header_block = counter.read(&[0, 0, 1, HEADERS, 0, 0, 0, 0, 1, b'x']);
        assert_eq!(
            unfinished_header_block,
            FrameCounts {
                requests: 1,
                has_large: true
            }
        );
        // The header of a DATA frame of 8 KiB.
        assert_eq!(
            counter.read(&[0, 0x20, 0, 0, 0, 0, 0, 0, 1]),
            FrameCounts {
                requests: 0,
                has_large: true
            }
        );
    }
}
