//! States saved by an older version of an application, read by a newer one.
//!
//! `evolution/*.state` were written by the types of [`first`], which document their content.

use crate::common::slow_store::SlowStore;
use bytes::Bytes;
use elastin::{Actor, Handlers, Ref, decode_state, encode_state, handlers};
use elastin_runtime::Runtime;
use elastin_types::{CallError, NotDelivered};
use serde::{Deserialize, Serialize};

const MEMBER: &[u8] = include_bytes!("evolution/member.state");
const NEW_MEMBER: &[u8] = include_bytes!("evolution/new-member.state");

/// The original version.
mod first {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Actor, Serialize, Deserialize, Default)]
    #[actor(persist)]
    pub(super) struct Member {
        pub(super) name: String,
        pub(super) logins: u32,
        pub(super) address: Option<Address>,
        pub(super) friends: Vec<Ref<Member>>,
        pub(super) scores: BTreeMap<String, i64>,
    }

    #[derive(Serialize, Deserialize)]
    pub(super) struct Address {
        pub(super) street: String,
        pub(super) code: u32,
    }

    #[handlers]
    impl Member {}

    pub(super) fn member() -> Member {
        let friend = |key: u64| Ref::from_id(elastin_types::ActorId::new(Member::KIND, key)).unwrap();
        Member {
            name: "Ada".into(),
            logins: 300,
            address: Some(Address {
                street: "St James's Square".into(),
                code: 12,
            }),
            friends: vec![friend(2), friend(3)],
            scores: [("chess".to_owned(), -5)].into(),
        }
    }
}

/// A later version: fields added with defaults, at both levels, and one removed.
mod later {
    use super::*;

    #[derive(Actor, Serialize, Deserialize)]
    #[actor(persist)]
    #[serde(default)]
    pub(super) struct Member {
        pub(super) language: String,
        pub(super) name: String,
        // A wider number type.
        pub(super) logins: u64,
        pub(super) address: Option<Address>,
        pub(super) friends: Vec<Ref<Member>>,
    }

    impl Default for Member {
        fn default() -> Self {
            Self {
                language: "en".into(),
                name: String::new(),
                logins: 0,
                address: None,
                friends: Vec::new(),
            }
        }
    }

    #[derive(Serialize, Deserialize)]
    pub(super) struct Address {
        pub(super) street: String,
        pub(super) code: u32,
        #[serde(default)]
        pub(super) country: Option<String>,
    }

    #[handlers]
    impl Member {
        fn describe(&self) -> String {
            let address = self.address.as_ref();
            let address = address.map(|it| format!("{} {} {:?}", it.street, it.code, it.country));
            format!(
                "{} ({}), {} logins, {} friends, {}",
                self.name,
                self.language,
                self.logins,
                self.friends.len(),
                address.unwrap_or_default()
            )
        }
    }
}

/// An incompatible version: the type of a field has changed.
mod retyped {
    use super::*;

    #[derive(Actor, Serialize, Deserialize, Default)]
    #[actor(persist)]
    pub(super) struct Member {
        pub(super) name: String,
        pub(super) logins: u32,
        pub(super) address: Option<Address>,
    }

    #[derive(Serialize, Deserialize)]
    pub(super) struct Address {
        pub(super) street: String,
        pub(super) code: String,
    }

    #[handlers]
    impl Member {
        fn rename(&mut self, name: String) {
            self.name = name;
        }

        fn name(&self) -> String {
            self.name.clone()
        }
    }
}

/// An incompatible version: a new field has no default.
mod without_default {
    use super::*;

    #[derive(Actor, Serialize, Deserialize, Default)]
    #[actor(persist)]
    pub(super) struct Member {
        pub(super) name: String,
        pub(super) language: String,
    }

    #[handlers]
    impl Member {}
}

#[test]
fn the_golden_files_match_the_first_version() {
    assert_eq!(encode_state(&first::member()).unwrap(), MEMBER);
    assert_eq!(encode_state(&first::Member::default()).unwrap(), NEW_MEMBER);
}

fn start<A: Handlers>(states: &[(u64, &'static [u8])]) -> Runtime {
    let (store, _saves) = SlowStore::new();
    for (key, state) in states {
        let actor = elastin_types::ActorId::new(A::KIND, *key);
        store.keep(&actor, Bytes::from_static(state));
    }
    Runtime::builder()
        .register::<A>()
        .workers(1)
        .remote(store)
        .build()
        .unwrap()
}

#[tokio::test]
async fn fields_with_defaults_can_be_added_and_removed() {
    let runtime = start::<later::Member>(&[(1, MEMBER), (2, NEW_MEMBER)]);
    let describe = async |key: u64| {
        let member: Ref<later::Member> = runtime.client().actor(key);
        member.describe().await.unwrap()
    };
    assert_eq!(
        describe(1).await,
        "Ada (en), 300 logins, 2 friends, St James's Square 12 None"
    );
    assert_eq!(describe(2).await, " (en), 0 logins, 0 friends, ");
}

#[tokio::test]
async fn a_retyped_field_is_named_and_affects_only_its_actor() {
    let runtime = start::<retyped::Member>(&[(1, MEMBER), (2, NEW_MEMBER)]);
    let one: Ref<retyped::Member> = runtime.client().actor(1);
    let unavailable = Err(CallError::NotDelivered(NotDelivered::StateUnavailable));
    assert_eq!(one.name().await, unavailable);
    let error = decode_state::<retyped::Member>(MEMBER).err().unwrap();
    assert_eq!(
        error.to_string(),
        "the state of a `Member` can't be decoded: field `address.code`: invalid type: integer `12`, expected a string"
    );
    let other: Ref<retyped::Member> = runtime.client().actor(2);
    assert_eq!(other.name().await, Ok(String::new()));
    // A failed activation does not overwrite the state.
    assert_eq!(
        one.rename("Eve".into()).await,
        Err(CallError::NotDelivered(NotDelivered::StateUnavailable))
    );
}

#[test]
fn decode_errors_name_the_cause() {
    let missing = decode_state::<without_default::Member>(MEMBER).err().unwrap();
    assert_eq!(missing.why, "missing field `language`");
    let cut = decode_state::<first::Member>(&MEMBER[..20]).err().unwrap();
    assert_eq!(cut.why, "IO error while reading marker: failed to fill whole buffer");
}
