//! Compares the outcomes that callers saw with the contents of the accounts.

use std::collections::{BTreeMap, BTreeSet};

use elastin::prelude::CallError;

use super::account::Coins;

/// Outcomes of one caller's deposits.
pub(super) struct Deposits {
    sender: u32,
    by_account: BTreeMap<u64, Known>,
}

#[derive(Default)]
struct Known {
    answered: BTreeSet<u64>,
    refused: BTreeSet<u64>,
    in_doubt: BTreeSet<u64>,
}

impl Deposits {
    pub(super) fn new(sender: u32) -> Self {
        let by_account = BTreeMap::new();
        Self { sender, by_account }
    }

    /// Records the outcome of a deposit.
    pub(super) fn note(&mut self, account: u64, coin: u64, outcome: &Result<(), CallError>) {
        let known = self.by_account.entry(account).or_default();
        let coins = match outcome {
            Ok(()) => &mut known.answered,
            Err(error) if error.is_safe_to_retry() => &mut known.refused,
            Err(_) => &mut known.in_doubt,
        };
        coins.insert(coin);
    }
}

/// Outcomes of all callers, and the differences found in the accounts.
#[derive(Default)]
pub(super) struct Audit {
    known: BTreeMap<(u64, u32), Known>,
    answered: u64,
    refused: u64,
    in_doubt: u64,
    lost: u64,
    refused_but_there: u64,
    in_doubt_and_there: u64,
    doubled_or_reordered: u64,
}

impl Audit {
    pub(super) fn add(&mut self, deposits: Deposits) {
        for (account, known) in deposits.by_account {
            self.answered += known.answered.len() as u64;
            self.refused += known.refused.len() as u64;
            self.in_doubt += known.in_doubt.len() as u64;
            self.known.insert((account, deposits.sender), known);
        }
    }

    /// Compares an account with the recorded outcomes.
    pub(super) fn compare(&mut self, account: u64, coins: &Coins) {
        let none = Vec::new();
        let of_account = self.known.range((account, 0)..=(account, u32::MAX));
        for ((_, sender), known) in of_account {
            let coins = coins.get(sender).unwrap_or(&none);
            self.doubled_or_reordered += coins.windows(2).filter(|pair| pair[0] >= pair[1]).count() as u64;
            let there: BTreeSet<u64> = coins.iter().copied().collect();
            self.lost += known.answered.difference(&there).count() as u64;
            self.refused_but_there += known.refused.intersection(&there).count() as u64;
            self.in_doubt_and_there += known.in_doubt.intersection(&there).count() as u64;
        }
    }

    pub(super) fn table(&self) -> String {
        let Audit {
            answered,
            refused,
            in_doubt,
            lost,
            refused_but_there,
            in_doubt_and_there,
            doubled_or_reordered,
            ..
        } = self;
        format!(
            "  calls answered            {answered:>8}   of these lost: {lost}\n\
             \u{20} calls refused (not run)   {refused:>8}   of these run anyway: {refused_but_there}\n\
             \u{20} calls in doubt            {in_doubt:>8}   of these run: {in_doubt_and_there}\n\
             \u{20} run twice or out of order {doubled_or_reordered:>8}\n"
        )
    }

    /// Fails if an outcome was wrong.
    pub(super) fn verdict(&self) -> anyhow::Result<()> {
        let broken = self.lost + self.refused_but_there + self.doubled_or_reordered;
        anyhow::ensure!(
            broken == 0,
            "calls whose effect differs from the reported outcome: {broken}"
        );
        anyhow::ensure!(self.answered > 0, "no call was answered");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use elastin_types::{NotDelivered, Unknown};

    use super::*;

    fn audit(coins: &[u64]) -> Audit {
        let mut deposits = Deposits::new(3);
        deposits.note(1, 1, &Ok(()));
        deposits.note(1, 2, &Err(CallError::NotDelivered(NotDelivered::NoPlace)));
        deposits.note(1, 3, &Err(CallError::Unknown(Unknown::NodeLost)));
        let mut audit = Audit::default();
        audit.add(deposits);
        audit.compare(1, &Coins::from([(3, coins.to_vec())]));
        audit
    }

    #[test]
    fn wrong_outcomes_are_found_and_doubtful_ones_accepted() {
        assert!(audit(&[1]).verdict().is_ok());
        assert!(audit(&[1, 3]).verdict().is_ok());
        for broken in [&[][..], &[1, 2], &[1, 1], &[3, 1]] {
            let error = audit(broken).verdict().unwrap_err().to_string();
            assert_eq!(
                error, "calls whose effect differs from the reported outcome: 1",
                "{broken:?}"
            );
        }
    }
}
