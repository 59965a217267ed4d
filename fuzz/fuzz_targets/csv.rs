//! Text tables, under every combination of options.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stepgraph::data::{CsvOptions, FeatureColumns, read_csv};
use stepgraph::model::{Header, TargetColumn};

fuzz_target!(|input: (u8, &[u8])| {
    let (choice, bytes) = input;
    let options = CsvOptions {
        header: [Header::Auto, Header::Yes, Header::No][usize::from(choice % 3)],
        target: [TargetColumn::Last, TargetColumn::Index(0), TargetColumn::Name("a".to_owned())]
            [usize::from(choice / 3 % 3)]
        .clone(),
        delimiter: [',', ';', '\t'][usize::from(choice / 9 % 3)],
        classes: choice / 27 % 2 == 0,
        features: FeatureColumns {
            text: (choice / 54 % 2 == 1).then_some(5),
            without_target: choice / 108 % 2 == 1,
            ..FeatureColumns::default()
        },
    };
    if let Ok(table) = read_csv(bytes, "input", &options) {
        let numbers = if table.tokens.is_some() { 0 } else { table.feature_names.len() };
        assert_eq!(table.x.len(), table.lines.len() * numbers);
        assert!(table.tokens.is_none_or(|tokens| tokens.len() == 5 * table.lines.len()));
        assert!(table.x.iter().all(|value| value.is_finite()));
    }
});
