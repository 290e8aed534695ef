//! Content codings: which one a client wants, and making it.
//!
//! Only what is big enough to gain by it is encoded, and streams that tell of changes never are: there a piece must be
//! seen the moment it is made.

use std::io::{self, Write as _};

use flate2::{Compression, write::GzEncoder};
use hyper::{
    HeaderMap,
    header::{ACCEPT_ENCODING, HeaderValue},
};

/// Smaller answers are sent as they are.
pub(super) const ENCODED_BYTES_MIN: usize = 1_024;
/// Bigger ones are encoded on a thread where that keeps nobody waiting.
pub(super) const INLINE_BYTES_MAX: usize = 16 * 1024;
/// Keys and values in base64 gain little by more effort.
const ZSTD_LEVEL: i32 = 1;

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Identity,
    Gzip,
    Zstd,
}

impl Encoding {
    /// The coding a request's `Accept-Encoding` headers ask for: of those we have, the one of the highest weight, zstd
    /// before gzip. What cannot be read asks for nothing.
    pub(super) fn accepted(headers: &HeaderMap) -> Encoding {
        let (mut zstd, mut gzip, mut any) = (None, None, None);
        let fields = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
        for (coding, weight) in fields.flat_map(|field| field.split(',')).filter_map(weighted) {
            match coding {
                _ if coding.eq_ignore_ascii_case("zstd") => zstd = Some(weight),
                _ if coding.eq_ignore_ascii_case("gzip") || coding.eq_ignore_ascii_case("x-gzip") => {
                    gzip = Some(weight)
                }
                "*" => any = Some(weight),
                _ => {}
            }
        }
        let (zstd, gzip) = (zstd.or(any).unwrap_or(0.0), gzip.or(any).unwrap_or(0.0));
        match (zstd > 0.0, gzip > 0.0) {
            (true, _) if zstd >= gzip => Encoding::Zstd,
            (_, true) => Encoding::Gzip,
            _ => Encoding::Identity,
        }
    }

    /// Its name in `Content-Encoding`; none for what is not encoded.
    pub(super) fn name(self) -> Option<HeaderValue> {
        match self {
            Encoding::Identity => None,
            Encoding::Gzip => Some(HeaderValue::from_static("gzip")),
            Encoding::Zstd => Some(HeaderValue::from_static("zstd")),
        }
    }

    /// Encodes a whole answer.
    pub(super) fn whole(self, plain: &[u8]) -> io::Result<Vec<u8>> {
        Encoder::new(self).encode(plain.to_vec(), true)
    }
}

/// `gzip;q=0.5` is ("gzip", 0.5).
fn weighted(item: &str) -> Option<(&str, f32)> {
    let mut parts = item.split(';').map(str::trim);
    let coding = parts.next().filter(|coding| !coding.is_empty())?;
    let mut weight = 1.0;
    for parameter in parts {
        if let Some((_, value)) = parameter.split_once('=').filter(|(name, _)| name.trim().eq_ignore_ascii_case("q")) {
            weight = value.trim().parse().ok().filter(|weight| (0.0..=1.0).contains(weight))?;
        }
    }
    Some((coding, weight))
}

/// Encodes an answer that comes in pieces.
pub(super) enum Encoder {
    Identity,
    Gzip(GzEncoder<Vec<u8>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    /// Its last piece was made, or it could not be set up, which the first piece tells.
    Broken(Option<io::Error>),
}

impl Encoder {
    pub(super) fn new(encoding: Encoding) -> Encoder {
        match encoding {
            Encoding::Identity => Encoder::Identity,
            Encoding::Gzip => Encoder::Gzip(GzEncoder::new(Vec::new(), Compression::fast())),
            Encoding::Zstd => match zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL) {
                Ok(encoder) => Encoder::Zstd(encoder),
                Err(error) => Encoder::Broken(Some(error)),
            },
        }
    }

    /// Encodes a piece; what comes out may be empty until there is more.
    pub(super) fn encode(&mut self, plain: Vec<u8>, is_last: bool) -> io::Result<Vec<u8>> {
        match self {
            Encoder::Identity => Ok(plain),
            Encoder::Gzip(encoder) => {
                encoder.write_all(&plain)?;
                if is_last {
                    encoder.try_finish()?;
                }
                Ok(std::mem::take(encoder.get_mut()))
            }
            Encoder::Zstd(encoder) => {
                encoder.write_all(&plain)?;
                if is_last {
                    encoder.do_finish()?;
                }
                Ok(std::mem::take(encoder.get_mut()))
            }
            Encoder::Broken(error) => Err(error.take().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::io::Read as _;

    use super::*;

    fn accepted(field: &str) -> Encoding {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_str(field).unwrap());
        Encoding::accepted(&headers)
    }

    #[test]
    fn the_heaviest_coding_we_have_is_taken() {
        let cases = [
            ("", Encoding::Identity),
            ("identity", Encoding::Identity),
            ("br, deflate", Encoding::Identity),
            ("gzip", Encoding::Gzip),
            ("x-gzip", Encoding::Gzip),
            ("GZIP", Encoding::Gzip),
            ("gzip, deflate, br, zstd", Encoding::Zstd),
            ("zstd;q=0.5, gzip;q=0.8", Encoding::Gzip),
            ("zstd;q=0, gzip", Encoding::Gzip),
            ("gzip;q=0", Encoding::Identity),
            ("*", Encoding::Zstd),
            ("*;q=0.1, zstd;q=0", Encoding::Gzip),
            ("gzip;q=2", Encoding::Identity),
            ("gzip;q=x", Encoding::Identity),
            (" , ;q=1, gzip ; q = 0.3", Encoding::Gzip),
        ];
        for (field, expected) in cases {
            assert_eq!(accepted(field), expected, "{field:?}");
        }
        assert_eq!(Encoding::accepted(&HeaderMap::new()), Encoding::Identity);
    }

    #[test]
    fn pieces_decode_to_what_was_put_in() {
        let pieces: Vec<Vec<u8>> = (0..20u8).map(|number| vec![number; 10_000]).collect();
        for encoding in [Encoding::Identity, Encoding::Gzip, Encoding::Zstd] {
            let mut encoder = Encoder::new(encoding);
            let mut encoded = Vec::new();
            for (at, piece) in pieces.iter().enumerate() {
                encoded.extend(encoder.encode(piece.clone(), at + 1 == pieces.len()).unwrap());
            }
            let mut decoded = Vec::new();
            match encoding {
                Encoding::Identity => decoded = encoded,
                Encoding::Gzip => _ = flate2::read::GzDecoder::new(&encoded[..]).read_to_end(&mut decoded).unwrap(),
                Encoding::Zstd => decoded = zstd::stream::decode_all(&encoded[..]).unwrap(),
            }
            assert_eq!(decoded, pieces.concat());
        }
    }
}
