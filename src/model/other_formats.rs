//! Files that are not presets, recognised by their first bytes: what each is, and what the user may have intended.

/// A kind of file that people pass instead of a preset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OtherFormat {
    /// What it is, with an article.
    pub name: &'static str,
    /// What to do with it in this program.
    pub help: &'static str,
}

/// A network in another program's format.
const MODEL: &str = "Stepgraph opens presets, which are JSON files, and writes ONNX and PyTorch without reading them; \
    write the network as a \
                     preset (`stepgraph presets digits-mlp` prints one)";
const TORCH: &str = "Stepgraph opens presets, which are JSON files; write the network as a preset, save its weights \
    with \
                     safetensors.torch.save_file, and begin from them with `stepgraph train PRESET --init FILE`";
const WEIGHTS: &str = "open the preset that they belong to, a JSON file; `stepgraph train PRESET --init FILE` begins \
    from weights, and \
                       `stepgraph train PRESET --resume FILE` continues from a checkpoint";
const CAPSULE: &str = "replay it with `stepgraph capsule replay FILE`, or in the studio with Replay a capsule";
const DATA: &str = "open a preset, a JSON file, and name this file in its data";
const PICTURES: &str =
    "open a preset, a JSON file, and name in its data a folder that has a subfolder of pictures for each class";
const OTHER: &str = "Stepgraph opens presets, which are JSON files; `stepgraph presets` lists those inside the program";

/// The first bytes of files.
const BEGINNINGS: [(&[u8], OtherFormat); 17] = [
    (b"\x93NUMPY", OtherFormat { name: "a NumPy array", help: DATA }),
    (b"\x89PNG", OtherFormat { name: "a PNG picture", help: PICTURES }),
    (b"\xff\xd8\xff", OtherFormat { name: "a JPEG picture", help: PICTURES }),
    (b"GIF8", OtherFormat { name: "a GIF picture", help: PICTURES }),
    (b"BM", OtherFormat { name: "a BMP picture", help: PICTURES }),
    (b"II*\0", OtherFormat { name: "a TIFF picture", help: PICTURES }),
    (b"MM\0*", OtherFormat { name: "a TIFF picture", help: PICTURES }),
    (b"\0\0\x08\x01", OtherFormat { name: "labels in the IDX format", help: DATA }),
    (b"\0\0\x08\x03", OtherFormat { name: "pictures in the IDX format", help: DATA }),
    (b"\x89HDF", OtherFormat { name: "an HDF5 file, as Keras saves models", help: MODEL }),
    (b"GGUF", OtherFormat { name: "a GGUF model", help: MODEL }),
    (b"\x80\x02", OtherFormat { name: "a Python pickle, the older format of PyTorch models", help: TORCH }),
    (b"\x80\x04", OtherFormat { name: "a Python pickle", help: TORCH }),
    (b"\x80\x05", OtherFormat { name: "a Python pickle", help: TORCH }),
    (b"\x1f\x8b", OtherFormat { name: "packed with gzip", help: "unpack it with gunzip; a preset is a JSON file" }),
    (b"%PDF", OtherFormat { name: "a PDF document", help: OTHER }),
    (b"\x7fELF", OtherFormat { name: "a program", help: OTHER }),
];

/// What these bytes are, if they are known not to be a preset.
pub(super) fn of(bytes: &[u8]) -> Option<OtherFormat> {
    let known = BEGINNINGS.iter().find(|(start, _)| bytes.starts_with(start) && !is_text(bytes));
    known
        .map(|(_, format)| *format)
        .or_else(|| riff(bytes))
        .or_else(|| zip(bytes))
        .or_else(|| tensors(bytes))
        .or_else(|| onnx(bytes))
}

/// Two letters may also be the start of a text: other formats have a control character among their first bytes.
fn is_text(bytes: &[u8]) -> bool {
    let first = &bytes[..bytes.len().min(64)];
    std::str::from_utf8(first).is_ok_and(|t| !t.chars().any(|c| c.is_control() && !c.is_whitespace()))
}

fn riff(bytes: &[u8]) -> Option<OtherFormat> {
    let is_webp = bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP");
    is_webp.then_some(OtherFormat { name: "a WebP picture", help: PICTURES })
}

/// An archive is recognised by the name of its first file.
fn zip(bytes: &[u8]) -> Option<OtherFormat> {
    let head = bytes.strip_prefix(b"PK\x03\x04")?;
    let length = head.get(22..24).map_or(0, |l| usize::from(u16::from_le_bytes([l[0], l[1]])));
    let name = head.get(26..26 + length).unwrap_or_default();
    let is_torch =
        [&b"/data.pkl"[..], b"/.format_version", b"/byteorder", b"/version"].iter().any(|end| name.ends_with(end));
    Some(match name {
        _ if name.ends_with(b".npy") => OtherFormat { name: "an archive of NumPy arrays (.npz)", help: DATA },
        _ if is_torch => OtherFormat { name: "a PyTorch model (.pt)", help: TORCH },
        _ => OtherFormat { name: "a zip archive", help: "unpack it; a preset is a JSON file" },
    })
}

/// Safetensors: the length of a JSON header, and the header, whose metadata identify a capsule and a checkpoint of this
/// program.
fn tensors(bytes: &[u8]) -> Option<OtherFormat> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    // A text cannot be mistaken for one: its first eight letters would be a length beyond every file.
    if length == 0 || length > 100 << 20 || rest.first() != Some(&b'{') {
        return None;
    }
    let header = &rest[..rest.len().min(length).min(4096)];
    let is_capsule = header.windows(b"\"stepgraph.capsule".len()).any(|w| w == b"\"stepgraph.capsule");
    Some(if is_capsule {
        OtherFormat { name: "a capsule", help: CAPSULE }
    } else {
        OtherFormat { name: "a file of weights (safetensors)", help: WEIGHTS }
    })
}

/// ONNX has no signature: its first field is a small version, and the second one of the few that follow it.
fn onnx(bytes: &[u8]) -> Option<OtherFormat> {
    let is_onnx = matches!(bytes, [0x08, 1..=63, 0x12 | 0x1a | 0x22 | 0x28 | 0x32 | 0x3a | 0x42, _, ..]);
    is_onnx.then_some(OtherFormat { name: "an ONNX model", help: MODEL })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(bytes: &[u8]) -> &'static str {
        of(bytes).map_or("", |f| f.name)
    }

    fn zip_of(name: &str) -> Vec<u8> {
        let mut head = b"PK\x03\x04".to_vec();
        head.extend([0; 22]);
        head.extend((name.len() as u16).to_le_bytes());
        head.extend([0; 2]);
        head.extend(name.as_bytes());
        head
    }

    #[test]
    fn other_formats_are_recognised_by_their_first_bytes() {
        let safetensors = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes(), &[0; 16]].concat();
        let cases: [(&[u8], &str); 12] = [
            (b"\x08\x08\x12\x09Stepgraph\x1a", "an ONNX model"),
            (b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR", "a PNG picture"),
            (b"\xff\xd8\xff\xe0\0\x10JFIF", "a JPEG picture"),
            (b"BM\x36\0\0\0\0\0\0\0", "a BMP picture"),
            (b"RIFF\0\0\0\0WEBPVP8 ", "a WebP picture"),
            (b"\x93NUMPY\x01\0", "a NumPy array"),
            (&zip_of("x.npy"), "an archive of NumPy arrays (.npz)"),
            (&zip_of("model/data.pkl"), "a PyTorch model (.pt)"),
            (&zip_of("word/document.xml"), "a zip archive"),
            (b"PK\x03\x04", "a zip archive"),
            (
                &safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}"),
                "a file of weights (safetensors)",
            ),
            (&safetensors("{\"__metadata__\":{\"stepgraph.capsule.1\":\"\"}}"), "a capsule"),
        ];
        for (bytes, wanted) in cases {
            assert_eq!(name(bytes), wanted, "{bytes:?}");
        }
    }

    #[test]
    fn texts_are_not_taken_for_other_formats() {
        for text in [
            "",
            "{",
            "{\"version\": 1}",
            "BMW,1,2\n",
            "GIF89a is a format",
            "II*",
            "[1, 2]",
            "\u{feff}{}",
            "a,b\n1,2\n",
        ] {
            assert_eq!(name(text.as_bytes()), "", "{text}");
        }
        for cut in 0..12 {
            let _ = of(&b"PK\x03\x04\0\0\0\0\0\0\0\0"[..cut]);
            let _ = of(&b"\x08\0\0\0\0\0\0\0{"[..cut.min(9)]);
        }
    }
}
