//! `stepgraph doctor`.

use super::{command, json, refused, refuses_values, run, stderr, stdout, succeed, was_refused};

#[test]
fn doctor_reports_what_exists_and_what_is_missing() {
    let report = json(&["doctor", "--json"]);
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(report["executors"], serde_json::json!(["cpu"]));
    assert_eq!(report["cuda"]["why_none"], "STEPGRAPH_NO_CUDA is set");
    assert!(report["auto_device"].as_str().unwrap().starts_with("the CPU"));
    assert!(report["threads"].as_u64().unwrap() >= 1);
    assert_eq!(report["studio"], cfg!(feature = "studio"));
    let output = command(&["doctor", "--json"]).env("STEPGRAPH_RUNS", "/some/runs").output().unwrap();
    assert!(stdout(&output).contains("\"/some/runs\""));
    assert!(succeed(&["doctor"]).contains("not looked for: STEPGRAPH_NO_CUDA is set"));
}

#[test]
fn doctor_shows_the_cache_of_kernels_clears_it_and_sets_its_limit() {
    let folder = tempfile::tempdir().unwrap();
    let kernels = folder.path().join("kernels");
    let doctor = |args: &[&str], mib: &str| {
        let mut command = command(&["doctor", "--json"]);
        let output = command.args(args).env("STEPGRAPH_CACHE", folder.path()).env("STEPGRAPH_CACHE_MIB", mib).output();
        serde_json::from_str::<serde_json::Value>(&stdout(&output.unwrap())).unwrap()
    };
    let empty = doctor(&[], "")["kernel_cache"].clone();
    assert_eq!((&empty["entries"], &empty["bytes"]), (&0.into(), &0.into()));
    assert_eq!((empty["path"].as_str(), empty["limit_bytes"].as_u64()), (kernels.to_str(), Some(512 << 20)));
    assert!(!kernels.exists(), "to look makes no folder");
    std::fs::create_dir(&kernels).unwrap();
    std::fs::write(kernels.join("0123456789abcdef.kernel"), [1; 5000]).unwrap();
    std::fs::write(kernels.join("times-0.json"), "{}").unwrap();
    assert_eq!(doctor(&[], "7")["kernel_cache"]["limit_bytes"], 7 << 20);
    let wrong = doctor(&[], "much");
    assert_eq!(wrong["kernel_cache"]["limit_bytes"], 512 << 20);
    assert!(wrong["advice"].to_string().contains("STEPGRAPH_CACHE_MIB is \\\"much\\\""), "{}", wrong["advice"]);
    let limited = doctor(&["--cache-limit", "3"], "")["kernel_cache"].clone();
    assert_eq!((&limited["bytes"], &limited["limit_bytes"]), (&5000.into(), &(3 << 20).into()));
    let cleared = doctor(&["--clear-cache"], "")["kernel_cache"].clone();
    assert_eq!((&cleared["bytes"], &cleared["cleared_bytes"]), (&0.into(), &5000.into()));
    assert_eq!(cleared["limit_bytes"], 3 << 20, "the limit stays");
    assert!(kernels.join("times-0.json").exists());
    let text = command(&["doctor"]).env("STEPGRAPH_CACHE", folder.path()).output().unwrap();
    assert!(stdout(&text).contains("0 GPU kernels, 0 B of at most 3.0 MiB"), "{}", stdout(&text));
    // A variable with no number leaves the folder's limit, and one with a number comes before it.
    assert!(doctor(&[], "much")["advice"].to_string().contains("the limit is 3.0 MiB until then"));
    let both = doctor(&["--cache-limit", "5"], "9");
    assert_eq!(both["kernel_cache"]["limit_bytes"], 9 << 20);
    assert!(both["advice"].to_string().contains("STEPGRAPH_CACHE_MIB sets a limit of 9.0 MiB"), "{}", both["advice"]);
    assert_eq!(doctor(&[], "")["kernel_cache"]["limit_bytes"], 5 << 20);
}

#[test]
fn doctor_says_where_nothing_can_be_stored() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let report = |variable: &str, value: &std::path::Path| {
        let output = command(&["doctor", "--json"]).env(variable, value).output().unwrap();
        serde_json::from_str::<serde_json::Value>(&stdout(&output)).unwrap()
    };
    let cache = report("STEPGRAPH_CACHE", &file);
    assert_eq!(cache["kernel_cache"]["writable"], false);
    let advice = cache["advice"].to_string();
    assert!(advice.contains("file/kernels writable, or set STEPGRAPH_CACHE"), "{advice}");
    assert_eq!(report("STEPGRAPH_CACHE", folder.path())["kernel_cache"]["writable"], true);
    let runs = report("STEPGRAPH_RUNS", &file.join("below"));
    let of_runs = runs["folders"].as_array().unwrap().iter().find(|found| found["purpose"] == "runs").unwrap();
    assert_eq!(of_runs["writable"], false, "{runs}");
    // A relative folder that does not exist yet would be made here.
    let relative = command(&["doctor"]).env("STEPGRAPH_CACHE", "not/yet").current_dir(folder.path()).output().unwrap();
    assert!(stdout(&relative).contains("not/yet/kernels: 0 GPU kernels"), "{}", stdout(&relative));
    // Without a folder, nothing can be cleared or limited.
    let without = |args: &[&str]| command(args).env("STEPGRAPH_CACHE", "").output().unwrap();
    assert!(
        stdout(&without(&["doctor"])).contains("compiled kernels are not kept: STEPGRAPH_CACHE is the empty string")
    );
    for args in [&["doctor", "--clear-cache"][..], &["doctor", "--cache-limit", "9"]] {
        assert!(was_refused(args, &without(args)).contains("compiled kernels are not kept"), "{args:?}");
    }
    let wrong: [(&str, &[&str], &str); 1] = [("--cache-limit", &["-1", "much", "1.5"], "expected a whole number")];
    refuses_values(&wrong, |option, value| refused(&["doctor", option, value]));
    // Kernels are compiled for a GPU.
    assert!(refused(&["doctor", "--compile-kernels"]).contains("none can be used: STEPGRAPH_NO_CUDA is set"));
}

#[test]
fn hidden_libraries_are_missing_in_plans_too() {
    let args = ["plan", "digits-cnn", "--device", "cuda", "--stage", "selected"];
    assert!(stdout(&run(&args)).contains("_cudnn_v0") && stdout(&run(&args)).contains("_cublaslt_v0"));
    let output = command(&args).env("STEPGRAPH_HIDE", "cudnn").output().unwrap();
    let note = stderr(&output);
    assert!(note.contains("an NVIDIA H200 with cuBLASLt, but without cuDNN"), "{note}");
    let plan = stdout(&output);
    let of_cudnn: Vec<&str> = plan.lines().filter(|line| line.contains("_cudnn")).collect();
    assert!(of_cudnn.len() > 3 && of_cudnn.iter().all(|line| line.contains("cuDNN is missing")), "{plan}");
    assert!(plan.contains("_cublaslt_v0") && !plan.contains("cuBLASLt is missing"), "{plan}");
    let output = command(&["doctor"]).env("STEPGRAPH_HIDE", "banana").output().unwrap();
    let text = stdout(&output);
    assert!(
        text.contains("STEPGRAPH_HIDE names \"banana\", which is no library; write some of driver, nvrtc"),
        "{text}"
    );
}

#[test]
fn plans_mark_kernels_for_any_size() {
    let plan = |kind: &str| {
        let args = ["plan", "digits-cnn", "--device", "cuda", "--stage", "selected"];
        stdout(&command(&args).env("STEPGRAPH_KERNELS", kind).output().unwrap())
    };
    let (general, specialised) = (plan("general"), plan(""));
    assert!(general.starts_with("target: NVIDIA H200, general kernels\n"), "{general}");
    assert!(specialised.starts_with("target: NVIDIA H200, specialised kernels\n"), "{specialised}");
    let marked = |text: &str| text.lines().filter(|line| line.contains(" us, any size")).count();
    assert!(marked(&general) > 10 && marked(&specialised) == 0, "{general}");
    assert!(succeed(&["plan", "digits-cnn", "--stage", "selected"]).starts_with("target: CPU"));
}
