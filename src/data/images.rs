//! Folders of pictures: one subfolder for each class, with PNG or JPEG files in it.

use super::dataset::Loaded;
use super::error::Side;
use super::file::{read_file, shown};
use super::{DataError, Dataset, InputSamples, Place, Preprocessing, Target};
use crate::tensor::Shape;
use image::imageops::{FilterType, resize};
use image::{DynamicImage, ImageReader, Limits};
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

/// The largest width and height of a picture, in pixels.
const MOST_PIXELS_A_SIDE: u32 = 16_384;
/// The most bytes a picture may decode to.
const MOST_DECODED: u64 = 512 << 20;
/// The largest width and height of a network's input.
const MOST_INPUT_A_SIDE: usize = 4096;
const EXTENSIONS: [&str; 3] = ["png", "jpg", "jpeg"];

/// The channels, height and width that pictures are converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame {
    gray: bool,
    height: u32,
    width: u32,
}

impl Frame {
    fn of(input: &Shape) -> Result<Self, DataError> {
        let side = |d: usize| u32::try_from(d).ok().filter(|_| (1..=MOST_INPUT_A_SIDE).contains(&d));
        if let &[channels @ (1 | 3), height, width] = input.0.as_slice()
            && let (Some(height), Some(width)) = (side(height), side(width))
        {
            return Ok(Self { gray: channels == 1, height, width });
        }
        let expected = format!("[C, H, W] with 1 or 3 channels and sides from 1 to {MOST_INPUT_A_SIDE}");
        let help = "set input.shape to the size that pictures are resized to, such as [3, 32, 32]";
        Err(DataError::fit(Side::Input, "images", Place::Whole, format!("input.shape {input}"), expected, help))
    }
}

/// One PNG or JPEG as `input` values `[C, H, W]`, resized, in 1 or 3 channels, scaled to 0..1.
///
/// # Errors
/// If the picture cannot be decoded or is unreasonably large, or `input` is not the shape of an image.
pub fn read_image(bytes: &[u8], file: &str, input: &Shape) -> Result<Vec<f32>, DataError> {
    let frame = Frame::of(input)?;
    let mut values = Vec::new();
    decode(bytes, file, frame, &mut values)?;
    Ok(values)
}

/// Appends the picture's values.
fn decode(bytes: &[u8], file: &str, frame: Frame, values: &mut Vec<f32>) -> Result<(), DataError> {
    let refused = |found: String| {
        let help = "open the file in a viewer, and remove it or save it again";
        DataError::content(file, Place::Whole, found, "a PNG or JPEG picture", help)
    };
    let mut reader = ImageReader::new(Cursor::new(bytes))
        .with_guessed_format()
        .map_err(|e| refused(format!("an unreadable picture ({e})")))?;
    let mut limits = Limits::default();
    limits.max_image_width = Some(MOST_PIXELS_A_SIDE);
    limits.max_image_height = Some(MOST_PIXELS_A_SIDE);
    limits.max_alloc = Some(MOST_DECODED);
    reader.limits(limits);
    let picture = reader.decode().map_err(|e| refused(format!("an unreadable picture ({e})")))?;
    if picture.width() == 0 || picture.height() == 0 {
        return Err(refused("a picture without pixels".to_owned()));
    }
    append(&picture, frame, values);
    Ok(())
}

/// Appends the picture plane by plane; values are divided by 255.
fn append(picture: &DynamicImage, Frame { gray, height, width }: Frame, values: &mut Vec<f32>) {
    let same = (picture.width(), picture.height()) == (width, height);
    if gray {
        let gray = picture.to_luma8();
        let gray = if same { gray } else { resize(&gray, width, height, FilterType::Triangle) };
        values.extend(gray.as_raw().iter().map(|&v| f32::from(v) / 255.0));
    } else {
        let color = picture.to_rgb8();
        let color = if same { color } else { resize(&color, width, height, FilterType::Triangle) };
        for channel in 0..3 {
            values.extend(color.as_raw().iter().skip(channel).step_by(3).map(|&v| f32::from(v) / 255.0));
        }
    }
}

/// The data set of a folder; classes are its subfolders in alphabetical order, and so are the files of each.
pub(super) fn load(folder: &Path, input: &Shape) -> Result<Loaded, DataError> {
    let frame = Frame::of(input)?;
    let mut ignored = Vec::new();
    let classes = entries(folder, &mut ignored, |path| path.is_dir())?;
    let empty = |folder: &Path, expected: &str| {
        let help = "arrange the pictures as folder/class/picture.png";
        DataError::content(&shown(folder), Place::Whole, "none", expected, help)
    };
    if classes.is_empty() {
        return Err(empty(folder, "one subfolder for each class"));
    }
    let (mut x, mut labels, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for (label, class) in (0i32..).zip(&classes) {
        let files = entries(class, &mut ignored, is_picture)?;
        if files.is_empty() {
            return Err(empty(class, "PNG or JPEG files for this class"));
        }
        for path in files {
            decode(&read_file(&path)?, &shown(&path), frame, &mut x)?;
            labels.push(label);
        }
        names.push(name_of(class));
    }
    let mut notes = vec![format!("pictures are resized to {input} and divided by 255")];
    if let Some(first) = ignored.first() {
        notes.push(format!("{} hidden or other files are ignored, such as {}", ignored.len(), shown(first)));
    }
    let target = Target::classes(labels, names);
    let dataset = Dataset {
        name: name_of(folder),
        inputs: InputSamples::only(input.clone(), x),
        target,
        feature_names: Vec::new(),
        notes,
        preprocessing: Preprocessing::default(),
    };
    Ok(Loaded::new(shown(folder), dataset))
}

fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(|| "images".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn is_picture(path: &Path) -> bool {
    let extension = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
    path.is_file() && extension.is_some_and(|extension| EXTENSIONS.contains(&extension.as_str()))
}

/// The visible entries of a folder that satisfy `wanted`, sorted; the others are added to `ignored`.
fn entries(
    folder: &Path,
    ignored: &mut Vec<PathBuf>,
    wanted: impl Fn(&Path) -> bool,
) -> Result<Vec<PathBuf>, DataError> {
    let refused = |cause| DataError::Read {
        file: shown(folder),
        cause,
        help: "name a folder with a subfolder of pictures for each class; relative paths start at the preset's folder",
    };
    let mut kept = Vec::new();
    for entry in fs::read_dir(folder).map_err(refused)? {
        let path = entry.map_err(refused)?.path();
        if !name_of(&path).starts_with('.') && wanted(&path) {
            kept.push(path);
        } else {
            ignored.push(path);
        }
    }
    kept.sort();
    ignored.sort();
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::mutation;
    use image::{GrayImage, ImageFormat, Luma, Rgb, RgbImage};

    fn encoded(picture: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        picture.into().write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    }

    fn color(width: u32, height: u32) -> RgbImage {
        RgbImage::from_fn(width, height, |x, y| Rgb([255, (x * 51) as u8, (y * 51) as u8]))
    }

    #[test]
    fn pictures_become_planes() {
        let bytes = encoded(color(3, 2), ImageFormat::Png);
        let x = read_image(&bytes, "p.png", &[3, 2, 3].into()).unwrap();
        assert_eq!(x[..6], [1.0; 6]);
        assert_eq!(x[6..12], [0.0, 0.2, 0.4, 0.0, 0.2, 0.4]);
        assert_eq!(x[12..], [0.0, 0.0, 0.0, 0.2, 0.2, 0.2]);
        let gray = encoded(GrayImage::from_pixel(5, 9, Luma([102])), ImageFormat::Png);
        assert_eq!(read_image(&gray, "p.png", &[1, 2, 2].into()).unwrap(), [0.4; 4]);
        assert_eq!(read_image(&gray, "p.png", &[3, 9, 5].into()).unwrap(), [0.4; 135]);
        let jpeg = encoded(RgbImage::from_pixel(16, 16, Rgb([255, 255, 255])), ImageFormat::Jpeg);
        assert_eq!(read_image(&jpeg, "p.jpg", &[1, 8, 8].into()).unwrap(), [1.0; 64]);
    }

    #[test]
    fn a_folder_is_a_data_set() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        };
        put("dog/b.PNG", &encoded(GrayImage::from_pixel(4, 4, Luma([51])), ImageFormat::Png));
        put("dog/a.png", &encoded(GrayImage::from_pixel(2, 2, Luma([255])), ImageFormat::Png));
        put("cat/one.jpeg", &encoded(GrayImage::from_pixel(8, 8, Luma([0])), ImageFormat::Jpeg));
        put("cat/notes.txt", b"hello");
        put(".cache/x.png", b"hidden");
        put("readme.md", b"");
        let data = load(dir.path(), &[1, 2, 2].into()).unwrap().dataset;
        assert_eq!(data.x(), [[0.0; 4], [1.0; 4], [0.2; 4]].concat());
        let names = vec!["cat".to_owned(), "dog".to_owned()];
        assert_eq!(data.target, Target::classes(vec![0, 1, 1], names));
        assert!(data.notes[1].starts_with("3 hidden or other files are ignored"), "{:?}", data.notes);
        put("cat/two.png", b"not a picture");
        let text = load(dir.path(), &[1, 2, 2].into()).err().unwrap().to_string();
        assert!(text.contains("two.png: found an unreadable picture"), "{text}");
        fs::remove_file(dir.path().join("cat/two.png")).unwrap();
        fs::create_dir(dir.path().join("empty")).unwrap();
        let text = load(dir.path(), &[1, 2, 2].into()).err().unwrap().to_string();
        assert!(text.contains("empty: found none, expected PNG or JPEG files"), "{text}");
        let text = load(&dir.path().join("empty"), &[1, 2, 2].into()).err().unwrap().to_string();
        assert!(text.contains("expected one subfolder for each class"), "{text}");
        assert!(
            load(&dir.path().join("none"), &[1, 2, 2].into()).err().unwrap().to_string().contains("cannot be read")
        );
    }

    #[test]
    fn the_input_must_be_an_image_of_sensible_size() {
        for shape in [vec![64], vec![2, 8, 8], vec![3, 0, 8], vec![3, 1 << 20, 1 << 20]] {
            let text = read_image(&[], "p", &shape.into()).unwrap_err().to_string();
            assert!(text.starts_with("images does not fit the network: found input.shape ["), "{text}");
        }
    }

    #[test]
    fn no_input_panics() {
        let samples = [
            encoded(color(5, 4), ImageFormat::Png),
            encoded(color(16, 16), ImageFormat::Jpeg),
            encoded(GrayImage::new(3, 3), ImageFormat::Png),
        ];
        let samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
        mutation::throw(&samples, 3000, |bytes| {
            let _ = read_image(bytes, "p", &[3, 4, 4].into());
        });
    }
}
