//! Gathers the source code of one folder as a text, which is one of the bundled data sets.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The folder whose files are the text.
const FOLDER: &str = "src/model";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={FOLDER}");
    let mut files = Vec::new();
    list(Path::new(FOLDER), &mut files)?;
    files.sort();
    let mut text = String::new();
    for file in files {
        text.push_str(&format!("// {}\n\n", file.display().to_string().replace('\\', "/")));
        // Every character is one of the 128 of ASCII, so that a network knows how many there are.
        text.extend(fs::read_to_string(&file)?.chars().map(|c| if c.is_ascii() { c } else { '?' }));
        text.push('\n');
    }
    let folder = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    fs::write(Path::new(&folder).join("source.txt"), text)
}

/// The Rust files of a folder and of those in it.
fn list(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    Ok(())
}
