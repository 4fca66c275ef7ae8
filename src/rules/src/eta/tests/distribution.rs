//! Random numbers, and the distribution of one duration.

use super::super::{Durations, random::Random};

fn assert_close(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9, "{found} instead of {expected}");
}

/// The first numbers of the reference implementation (`splitmix64.c`) for the seed 1234567, divided by 2^64.
#[test]
fn random_numbers_are_those_of_the_published_generator() {
    let mut random = Random::new(1_234_567);
    for expected in [0.350_079_542_021_408_1, 0.173_644_096_670_912_63, 0.532_207_304_062_419_2] {
        assert_close(random.unit(), expected);
    }
}

/// Twenty samples of exactly one second: the body knows nothing longer.
#[test]
fn something_that_has_lasted_as_long_as_all_known_durations_is_rather_stuck() {
    let durations = Durations::of(vec![1.0; 20], Some(1800.0), false);
    let assumed = durations.sampler(&mut Random::new(7));
    assert!((0.5..0.9999).contains(&assumed.steady_share(0.5)));
    assert_close(assumed.steady_share(1.0), 1.0);
}

/// Fifty samples of 1 s and fifty of 100 s. The first number of the seed 200 is 0.246, that of the seed 17 0.502.
#[test]
fn a_duration_is_drawn_between_two_neighbouring_quantiles() {
    let samples = [vec![1.0; 50], vec![100.0; 50]].concat();
    let durations = Durations::of(samples, None, false);
    let assumed = durations.sampler(&mut Random::new(7));
    let drawn = |seed: u64| assumed.draw(&mut Random::new(seed));
    // The middle of the table of 129 quantiles is 10 s, halfway in the logarithm, and the next quantile is 100 s.
    let expected = 10.0 + 90.0 * (128.0 * Random::new(17).unit() - 64.0);
    assert_close(drawn(17) / drawn(200), expected);
}

#[test]
fn the_longer_something_lasts_the_likelier_it_is_stuck() {
    let durations = Durations::of((0..100).map(|i| 100.0 + f64::from(i)).collect(), Some(1800.0), false);
    let assumed = durations.sampler(&mut Random::new(7));
    let shares: Vec<f64> = (0..400).map(|i| assumed.steady_share(100.0 + f64::from(i) / 5.0)).collect();
    assert!(shares.windows(2).all(|pair| pair[1] <= pair[0]), "{shares:?}");
    assert!(shares[399] < shares[0]);
}

/// Twenty samples of 1 s, and three that got stuck for 100 s.
#[test]
fn something_stuck_ends_after_now_and_about_as_late_as_others_did() {
    let samples = [vec![1.0; 20], vec![100.0; 3]].concat();
    let durations = Durations::of(samples, None, false);
    let mut random = Random::new(7);
    let assumed = durations.sampler(&mut random);
    let drawn: Vec<f64> = (0..200).map(|_| assumed.draw_beyond(99.0, &mut random)).collect();
    assert!(drawn.iter().all(|seconds| *seconds >= 99.0), "{drawn:?}");
    assert!(drawn.iter().any(|seconds| *seconds > 130.0), "{drawn:?}");
    let (mean, variance) = assumed.moments();
    assert!(mean > 1.0 && variance.sqrt() > 10.0, "{mean}, {variance}");
}
