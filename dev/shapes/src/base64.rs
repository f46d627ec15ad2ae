//! Checks whether strings are base64.

/// Whether a text is non-empty base64 as in RFC 4648: the standard alphabet, padded, without line
/// breaks.
pub(crate) fn is_standard(text: &str) -> bool {
    let bare = text.trim_end_matches('=');
    let padding = text.len() - bare.len();
    !bare.is_empty()
        && text.len().is_multiple_of(4)
        && padding <= 2
        && bare.bytes().all(is_standard_symbol)
}

/// Whether a text is non-empty base64 that protobuf's JSON accepts for bytes: either alphabet, with
/// or without padding.
pub(crate) fn is_lenient(text: &str) -> bool {
    let bare = text.trim_end_matches('=');
    let padding = text.len() - bare.len();
    let has_valid_padding = padding == 0 || (padding <= 2 && text.len().is_multiple_of(4));
    // A symbol has 6 bits, so one symbol after whole groups of four is less than a byte.
    let has_whole_bytes = bare.len() % 4 != 1;
    let is_symbol = |byte: u8| is_standard_symbol(byte) || matches!(byte, b'-' | b'_');
    !bare.is_empty() && has_whole_bytes && has_valid_padding && bare.bytes().all(is_symbol)
}

const fn is_standard_symbol(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_base64_is_padded_and_has_one_alphabet() {
        for good in ["QQ==", "QUI=", "QUJD", "+/+/"] {
            assert!(is_standard(good) && is_lenient(good), "{good}");
        }
        for bad in [
            "", "=", "====", "QQ", "QQ=", "Q===", "QQ==QQ==", "QU-_", "QU JD", "QUJD\n",
        ] {
            assert!(!is_standard(bad), "{bad:?}");
        }
    }

    #[test]
    fn lenient_base64_may_be_url_safe_and_unpadded() {
        for good in ["QQ", "QUI", "QU-_", "skip_thought_signature_validator"] {
            assert!(is_lenient(good), "{good}");
        }
        for bad in [
            "", "=", "Q", "QUJDQ", "QQ=", "QUJD=", "QQ==QQ", "Q Q", "Q.Q=",
        ] {
            assert!(!is_lenient(bad), "{bad:?}");
        }
    }
}
