//! The bindings of a rule that have fired, to drop repeated bindings and mirror images.

use std::collections::{BTreeMap, BTreeSet};

use elastin_types::{ActorId, NodeId};

use crate::{Action, ActorIndex, Rule};

/// The bindings of one rule that have fired.
pub(super) struct Seen {
    /// Kept only if several alternatives may find the same binding.
    bindings: Option<BTreeSet<(NodeId, Vec<ActorIndex>)>>,
    /// Firings by their actors in ascending order. Kept only if two variables can be exchanged.
    images: Option<BTreeMap<Vec<ActorIndex>, Vec<Image>>>,
}

struct Image {
    binding: Vec<ActorIndex>,
    actions: Vec<Action>,
    place: usize,
}

/// The relation of a new binding to the fired ones.
pub(super) enum Mirror {
    /// Its mirror image has not fired.
    None,
    /// Its mirror image has fired and stays.
    Keep,
    /// It replaces its mirror image, which is the firing at this index.
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

    /// Whether a permutation of the actors has fired with the same (normalised) actions. Of the two bindings, the one
    /// first in the order of ids is kept.
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
