//! Networks and neighbours that mean harm, with drawn bytes; the fuzz target `link_nodes` looks for better ones.

mod hostile;
mod network;

use network::Dice;

#[test]
fn whatever_the_network_does_nothing_comes_twice_and_no_stranger_ends_anything() {
    let seeds = std::env::var("EK_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(1000);
    for seed in 0..seeds {
        let mut dice = Dice(seed);
        let len = 100 + dice.below(1500);
        let bytes: Vec<u8> = (0..len).map(|_| dice.next() as u8).collect();
        hostile::play(&bytes);
    }
}
