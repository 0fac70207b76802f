//! Which bindings of a rule fired already: the same one found again, or its mirror image.

use std::collections::{BTreeMap, BTreeSet};

use elastin_types::{ActorId, NodeId};

use crate::{Action, ActorIndex, Rule};

/// The bindings of one rule that fired already.
pub(super) struct Seen {
    /// Kept only where several alternatives may find the same binding.
    bindings: Option<BTreeSet<(NodeId, Vec<ActorIndex>)>>,
    /// Kept only where two variables can be exchanged: what fired, by its actors in ascending order.
    images: Option<BTreeMap<Vec<ActorIndex>, Vec<Image>>>,
}

struct Image {
    binding: Vec<ActorIndex>,
    actions: Vec<Action>,
    place: usize,
}

/// What to do with a binding that fires.
pub(super) enum Mirror {
    /// Its mirror image has not fired.
    None,
    /// The one that fired before stays.
    Keep,
    /// It takes the place of the one that fired before.
    Replace(usize),
}

impl Seen {
    pub(super) fn new(rule: &Rule, alternatives: usize) -> Self {
        let exchangeable = rule.variables.iter().enumerate().any(|(index, one)| {
            rule.variables[index + 1..]
                .iter()
                .any(|other| one.kind.is_none() || other.kind.is_none() || one.kind == other.kind)
        });
        Self {
            bindings: (alternatives > 1).then(BTreeSet::new),
            images: exchangeable.then(BTreeMap::new),
        }
    }

    pub(super) fn is_new(&mut self, server: NodeId, binding: &[ActorIndex]) -> bool {
        match &mut self.bindings {
            Some(bindings) => bindings.insert((server, binding.to_vec())),
            None => true,
        }
    }

    /// Whether the same actors, exchanged, have fired with the same (normalised) actions. Of the two, the binding that
    /// comes first in the order of ids is kept.
    pub(super) fn mirror(
        &mut self,
        binding: &[ActorIndex],
        actions: impl FnOnce() -> Vec<Action>,
        ids: impl Fn(&[ActorIndex]) -> Vec<ActorId>,
        place: usize,
    ) -> Mirror {
        let Some(images) = &mut self.images else {
            return Mirror::None;
        };
        let actions = actions();
        let mut actors = binding.to_vec();
        actors.sort_unstable();
        let images = images.entry(actors).or_default();
        let Some(image) = images.iter_mut().find(|image| image.actions == actions) else {
            images.push(Image {
                binding: binding.to_vec(),
                actions,
                place,
            });
            return Mirror::None;
        };
        if ids(&image.binding) <= ids(binding) {
            return Mirror::Keep;
        }
        image.binding = binding.to_vec();
        Mirror::Replace(image.place)
    }
}
