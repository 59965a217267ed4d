//! Properties of every planner, on small random problems, synthetic training steps and published problems.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use super::samples::{Rng, cut_rectangle, full_problem, mlp_step, random_problem, random_problems, training_step};
use super::*;

fn published(name: &str) -> csv::Table {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/arena").join(name);
    csv::read(File::open(path).unwrap()).unwrap()
}

fn seconds(seconds: u64) -> Budget {
    Budget { time: Some(Duration::from_secs(seconds)) }
}

/// The lowest height of any placement, found by trying every aligned offset of every item, in the order of time.
fn optimum(problem: &Problem) -> u64 {
    fn fits(waiting: &[Item], laid: &mut Vec<(Item, u64)>, height: u64) -> bool {
        let Some((item, rest)) = waiting.split_first() else {
            return true;
        };
        let mut offset = 0;
        while offset + item.extent() <= height {
            let is_free = laid.iter().all(|(other, at)| {
                !item.meets(other) || offset + item.extent() <= *at || at + other.extent() <= offset
            });
            if is_free {
                laid.push((*item, offset));
                if fits(rest, laid, height) {
                    return true;
                }
                laid.pop();
            }
            offset += item.align;
        }
        false
    }
    let has_bytes = |item: &&Item| item.extent() > 0;
    let mut items: Vec<Item> = problem.items().iter().filter(has_bytes).copied().collect();
    items.sort_by_key(|item| item.lower);
    (problem.lower_bound()..).find(|&height| fits(&items, &mut Vec::new(), height)).unwrap()
}

#[test]
fn the_referee_accepts_every_planner_on_random_problems() {
    for problem in random_problems(1, 150, 40) {
        for planner in Planner::ALL {
            let placement = planner.plan(&problem);
            assert_eq!(referee::check(&problem, &placement), Ok(()), "{planner}");
            assert!(placement.height >= problem.lower_bound(), "{planner}");
        }
    }
}

#[test]
fn the_search_agrees_with_exhaustive_search() {
    let mut rng = Rng::new(2);
    let mut above_bound = 0;
    for round in 0..600 {
        let problem = match round % 3 {
            0 => random_problem(&mut rng, 7),
            _ => full_problem(&mut rng, 12, 12),
        };
        let report = plan_best(&problem, Budget::default());
        assert_eq!(referee::check(&problem, &report.placement), Ok(()));
        let (height, optimum) = (report.placement.height, optimum(&problem));
        assert!(height >= optimum, "round {round}: {height} is below the optimum {optimum}");
        // If alignments differ, the search may miss a placement, and must not claim that its own is the lowest.
        if round % 3 != 0 || report.proved_optimal {
            assert_eq!(height, optimum, "round {round}");
            assert!(report.proved_optimal, "round {round}");
        }
        above_bound += u32::from(optimum > report.lower_bound);
    }
    assert!(above_bound >= 3, "only {above_bound} optima are above their bound and had to be proved");
}

#[test]
fn an_unreachable_bound_is_proved_unreachable() {
    // Twelve items fill ten bytes at every time, but no placement in ten bytes exists.
    let lower = [0, 1, 0, 3, 4, 1, 5, 6, 0, 3, 6, 7];
    let upper = [1, 3, 4, 5, 5, 6, 6, 7, 8, 8, 8, 8];
    let sizes = [8, 5, 1, 4, 1, 3, 5, 2, 1, 1, 6, 2];
    let items = (0..12).map(|i| Item { lower: lower[i], upper: upper[i], size: sizes[i], align: 1 });
    let problem = Problem::new(items.collect()).unwrap();
    let report = plan_best(&problem, Budget::default());
    assert_eq!(optimum(&problem), 11);
    assert_eq!((report.lower_bound, report.placement.height), (10, 11));
    assert!(report.proved_optimal);
}

#[test]
fn the_search_never_excludes_a_possible_height() {
    // The pieces of a rectangle fit into it, also if some of them are missing or have shrunk.
    let mut rng = Rng::new(12);
    for round in 0..300 {
        let whole = cut_rectangle(&mut rng, 12 + round % 20, 12, 24);
        let mut items = whole.items().to_vec();
        items.retain(|_| round % 3 == 0 || rng.below(8) != 0);
        for item in &mut items {
            if round % 3 == 2 && rng.below(4) == 0 {
                item.size = 1 + rng.below(item.size);
            }
        }
        let problem = Problem::new(items).unwrap();
        let report = plan_best(&problem, Budget::default());
        assert_eq!(referee::check(&problem, &report.placement), Ok(()));
        if report.proved_optimal {
            assert!(report.placement.height <= 24, "round {round}");
        }
    }
}

#[test]
fn the_search_meets_the_bound_if_every_order_fails() {
    let mut rng = Rng::new(11);
    let problem = cut_rectangle(&mut rng, 200, 1 << 20, 1024);
    for planner in Planner::ALL {
        let is_search = planner == Planner::Search;
        assert_eq!(planner.plan(&problem).height == 1024, is_search, "{planner}");
    }
    let report = plan_best(&problem, Budget::default());
    assert_eq!((report.planner, report.proved_optimal), (Planner::Search, true));
}

#[test]
fn a_plan_depends_only_on_its_problem() {
    let mut rng = Rng::new(4);
    for _ in 0..10 {
        let problem = cut_rectangle(&mut rng, 120, 60, 1024);
        let placement = plan_best(&problem, Budget::default()).placement;
        for _ in 0..3 {
            assert_eq!(plan_best(&problem, Budget::default()).placement, placement);
        }
    }
}

#[test]
fn planning_stops_at_the_first_planner_that_meets_the_bound() {
    let report = plan_best(&mlp_step(20, 8, 16), seconds(60));
    assert_eq!(report.tried.len(), 1);
    assert_eq!(report.ratio, 1.0);
    assert!(report.proved_optimal);
}

#[test]
fn an_empty_problem_has_an_empty_arena() {
    let report = plan_best(&Problem::new(Vec::new()).unwrap(), Budget::default());
    assert_eq!(report.placement.height, 0);
    assert_eq!(report.ratio, 1.0);
    assert!(report.proved_optimal);
}

#[test]
fn offsets_are_multiples_of_mixed_alignments() {
    let item = |lower, upper, size, align| Item { lower, upper, size, align };
    let items = vec![item(0, 2, 100, 256), item(1, 3, 7, 12), item(0, 3, 5, 1)];
    let problem = Problem::new(items).unwrap();
    for planner in Planner::ALL {
        assert_eq!(referee::check(&problem, &planner.plan(&problem)), Ok(()), "{planner}");
    }
}

#[test]
fn training_steps_meet_the_bound_or_nearly_so() {
    let mut rng = Rng::new(6);
    let (mut met, mut count) = (0, 0);
    for layers in [10, 30, 60, 120] {
        for round in 0..8 {
            let problem = training_step(&mut rng, layers, if round % 2 == 0 { 256 } else { 1 });
            let report = plan_best(&problem, Budget::default());
            assert_eq!(referee::check(&problem, &report.placement), Ok(()));
            assert!(report.ratio <= 1.01, "{layers} layers, round {round}: {}", report.ratio);
            met += u32::from(report.placement.height == report.lower_bound);
            count += 1;
        }
    }
    assert!(met * 10 >= count * 9, "{met} of {count} meet the bound");
}

#[test]
fn a_thousand_dense_layers_meet_the_bound_at_once() {
    let problem = mlp_step(1000, 64, 512);
    let report = plan_best(&problem, Budget::default());
    assert_eq!(referee::check(&problem, &report.placement), Ok(()));
    assert_eq!(report.placement.height, report.lower_bound);
    assert_eq!(report.tried.len(), 1);
}

#[test]
fn published_problems_meet_their_bounds() {
    for (name, bound) in [
        ("minimalloc-A.csv", 1_048_576),
        ("minimalloc-C.csv", 1_039_360),
        ("minimalloc-G.csv", 1_048_576),
        ("somas-resnet50.csv", 1_515_472_556),
    ] {
        let table = published(name);
        let report = plan_best(&table.problem, Budget::default());
        assert_eq!(report.lower_bound, bound, "{name}");
        assert_eq!(referee::check(&table.problem, &report.placement), Ok(()), "{name}");
        assert_eq!(report.placement.height, bound, "{name}");
    }
}

#[test]
fn a_search_ends_when_its_time_is_over() {
    let mut rng = Rng::new(8);
    let jittered = published("minimalloc-C.csv")
        .problem
        .items()
        .iter()
        .map(|item| Item { size: item.size + 1024 * rng.below(3), ..*item })
        .collect();
    let problem = Problem::new(jittered).unwrap();
    let started = Instant::now();
    let time = Duration::from_millis(300);
    let report = plan_best(&problem, Budget { time: Some(time) });
    assert_eq!(referee::check(&problem, &report.placement), Ok(()));
    assert!(report.proved_optimal || started.elapsed() >= time);
    assert!(started.elapsed() < 5 * time, "{:?}", started.elapsed());
}
