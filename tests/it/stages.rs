//! The text of every stage for every stored network, so that a change of any stage is visible where it is made.
//!
//! The target is fixed, so that the text is the same on every machine. `UPDATE_GOLDENS=1` rewrites the files; read what
//! changed before you keep it.

use std::path::{Path, PathBuf};
use stepgraph::compile::{Compiled, Options, compile};
use stepgraph::model::{check, read_preset};
use stepgraph::plan::CapturePlan;
use stepgraph::select::{Isa, Target};

/// Files longer than this are cut: the rest of a long listing shows nothing new.
const MAX_LINES: usize = 160;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every bundled preset and every golden network, by name; except the preset of 200 layers, whose text is too long.
fn presets() -> Vec<PathBuf> {
    let json = |folder: &str| {
        let entries = std::fs::read_dir(root().join(folder)).unwrap().map(|e| e.unwrap().path());
        entries.filter(|p| p.extension().is_some_and(|e| e == "json")).collect::<Vec<_>>()
    };
    let mut all = [json("presets"), json("tests/data/golden")].concat();
    all.retain(|p| !p.ends_with("stress-200.json"));
    all.sort();
    assert!(all.len() > 20, "the presets exist");
    all
}

/// A kernel for each operation, with its estimate and the operations that it computes.
fn selected(c: &Compiled) -> String {
    let ops = c.selection.program.ops.iter().zip(&c.selection.choices).enumerate();
    let line = |(i, (op, choice)): (usize, (&stepgraph::lower::Op, &stepgraph::select::Choice))| {
        let fused = if op.fused.is_empty() { String::new() } else { format!("  [{}]", op.fused.join(" + ")) };
        format!(
            "{i:>4}  {:<38} {:>8.1} us {:>8} workspace{fused}\n",
            choice.kernel, choice.cost_us, choice.workspace_bytes
        )
    };
    format!("target: {}\n{}", c.selection.target.name, ops.map(line).collect::<String>())
}

/// One line for each buffer and each part, and the sizes of the whole.
fn bindings(c: &Compiled) -> String {
    let plan = &c.plan;
    let mut out = format!(
        "arena {} bytes, lower bound {}, unshared {}, persistent {}\n",
        plan.arena_bytes, plan.lower_bound_bytes, plan.unshared_bytes, plan.persistent_bytes
    );
    for b in &plan.buffers {
        let [from, to] = b.live;
        out += &format!(
            "{:<10} {:>9} {:>9} {from:>3}..{to:<3} {} {} {}\n",
            b.role.name(),
            b.offset,
            b.bytes,
            b.dtype,
            b.shape,
            b.name
        );
        for p in &b.parts {
            out += &format!("{:<10} {:>9} {:>9}          {} {}\n", "", b.offset + p.start, p.bytes, p.shape, p.name);
        }
    }
    out
}

fn cut(text: &str) -> String {
    let count = text.lines().count();
    let mut out: String = text.lines().take(MAX_LINES).map(|l| format!("{}\n", l.trim_end())).collect();
    if count > MAX_LINES {
        out += &format!("… {} more lines\n", count - MAX_LINES);
    }
    out
}

fn stages(path: &Path) -> [(&'static str, String); 5] {
    let preset = read_preset(&std::fs::read_to_string(path).unwrap()).unwrap();
    let model = check(&preset).model.unwrap();
    let c = compile(&model, &Options::train(Target::cpu(Isa::Avx2, 2))).unwrap();
    let capture = CapturePlan::new(&c.plan, &c.model).to_string();
    [
        ("ir", c.graph.to_string()),
        ("lowered", c.program.to_string()),
        ("selected", selected(&c)),
        ("bindings", bindings(&c)),
        ("capture", capture),
    ]
}

/// The first lines that differ.
fn difference(found: &str, expected: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) = (found.lines().collect(), expected.lines().collect());
    let at = (0..a.len().max(b.len())).find(|&i| a.get(i) != b.get(i)).unwrap_or(0);
    let line = |t: &[&str]| t.get(at).map_or("(end)", |l| l.trim()).to_owned();
    format!("line {}:\n  expected {}\n  found    {}", at + 1, line(&b), line(&a))
}

#[test]
fn every_stage_of_every_preset_prints_as_before() {
    let folder = root().join("tests/data/stages");
    let update = std::env::var_os("UPDATE_GOLDENS").is_some();
    if update {
        std::fs::create_dir_all(&folder).unwrap();
    }
    let (mut mistakes, mut names) = (Vec::new(), Vec::new());
    for path in presets() {
        let mut name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if path.parent().unwrap().ends_with("golden") && root().join(format!("presets/{name}.json")).exists() {
            name = format!("golden-{name}");
        }
        for (stage, text) in stages(&path) {
            let (file, text) = (format!("{name}.{stage}.txt"), cut(&text));
            let golden = folder.join(&file);
            if update {
                std::fs::write(&golden, &text).unwrap();
            } else {
                match std::fs::read_to_string(&golden) {
                    Ok(expected) if expected == text => {}
                    Ok(expected) => mistakes.push(format!("{file}, {}", difference(&text, &expected))),
                    Err(error) => mistakes.push(format!("{file}: {error}")),
                }
            }
            names.push(file);
        }
    }
    let mut kept: Vec<String> =
        std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    kept.retain(|f| !names.contains(f));
    mistakes.extend(kept.iter().map(|f| format!("{f} belongs to no preset; delete it")));
    let count = mistakes.len();
    mistakes.truncate(10);
    assert!(count == 0, "{count} files differ; UPDATE_GOLDENS=1 rewrites them\n{}", mistakes.join("\n"));
}
