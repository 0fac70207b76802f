//! The actor of the chaos demo.

use std::collections::BTreeMap;

use elastin::prelude::*;

/// By depositor, the coins in the order of their deposits.
pub(crate) type Coins = BTreeMap<u32, Vec<u64>>;

/// Keeps coins. Each is saved before its deposit is acknowledged.
#[derive(Actor, Serialize, Deserialize, Default)]
#[actor(persist)]
pub(crate) struct Account {
    coins: Coins,
}

#[handlers]
impl Account {
    /// Takes a coin.
    async fn deposit(&mut self, sender: u32, coin: u64) {
        self.coins.entry(sender).or_default().push(coin);
    }

    /// All coins.
    async fn coins(&self) -> Coins {
        self.coins.clone()
    }
}
