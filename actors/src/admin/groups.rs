//! Consumer groups as tools make, read and delete them: UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200), its list
//! (225), GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201), DELETE_SUBSCRIPTIONGROUP (207), GET_SUBSCRIPTIONGROUP_CONFIG
//! (352), UPDATE_AND_GET_GROUP_FORBIDDEN (353).
//!
//! Invariants:
//! - a change is answered once it is on disk and published;
//! - who asks for no page gets everything.

use troupemq_codec::group::SubscriptionGroupConfig;
use troupemq_codec::loose_json::from_loose;
use troupemq_codec::request::{
    DeleteSubscriptiongroupHeader, GetAllSubscriptiongroupConfigHeader,
    GetAllSubscriptiongroupConfigReplyHeader, GetSubscriptiongroupConfigHeader, GroupForbidden,
    SubscriptionGroupList, UpdateAndGetGroupForbiddenHeader,
};
use troupemq_codec::{Command, ResponseCode};

use super::clients::body;
use crate::cast::BrokerCast;
use crate::groups::table::unknown;
use crate::groups::{AllGroups, ForbidReading, PutGroups, RemoveGroup};
use crate::net::{Answer, Call, Refusal};
use crate::offsets::Forget;

/// UPDATE_AND_CREATE_SUBSCRIPTIONGROUP.
pub async fn update_group(cast: &BrokerCast, call: &Call) -> Answer {
    put(cast, vec![from_loose(&call.command.body)?]).await
}

/// UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST.
pub async fn update_groups(cast: &BrokerCast, call: &Call) -> Answer {
    let list: SubscriptionGroupList = from_loose(&call.command.body)?;
    put(cast, list.group_config_list).await
}

async fn put(cast: &BrokerCast, configs: Vec<SubscriptionGroupConfig>) -> Answer {
    let saved = cast.groups.send(PutGroups(configs)).await??;
    saved.await.map_err(|_| Refusal::gone("Groups"))??;
    Ok(Command::response(ResponseCode::SUCCESS))
}

/// GET_ALL_SUBSCRIPTIONGROUP_CONFIG: all groups, or the page that later versions ask for.
pub async fn all_groups(cast: &BrokerCast, call: &Call) -> Answer {
    let header: GetAllSubscriptiongroupConfigHeader = call.command.header()?;
    let mut table = cast.groups.send(AllGroups).await?;
    let Some(max) = header.groups_max.and_then(|max| usize::try_from(max).ok()).filter(|max| *max > 0) else {
        return body(&table);
    };
    let first = header.group_seq.and_then(|first| usize::try_from(first).ok()).unwrap_or(0);
    let total = i32::try_from(table.subscription_group_table.len()).unwrap_or(i32::MAX);
    table.subscription_group_table =
        std::mem::take(&mut table.subscription_group_table).into_iter().skip(first).take(max).collect();
    let reply = GetAllSubscriptiongroupConfigReplyHeader { groups_total: Some(total) };
    Ok(body(&table)?.with_header(&reply))
}

/// DELETE_SUBSCRIPTIONGROUP. A group that is not there is no error.
pub async fn delete_group(cast: &BrokerCast, call: &Call) -> Answer {
    let header: DeleteSubscriptiongroupHeader = call.command.header()?;
    let saved = cast.groups.send(RemoveGroup(header.group.clone())).await?;
    saved.await.map_err(|_| Refusal::gone("Groups"))??;
    if header.clean_offset == Some(true) {
        cast.offsets.send(Forget::Group(header.group)).await?;
    }
    Ok(Command::response(ResponseCode::SUCCESS))
}

/// GET_SUBSCRIPTIONGROUP_CONFIG.
pub async fn group_config(cast: &BrokerCast, call: &Call) -> Answer {
    let header: GetSubscriptiongroupConfigHeader = call.command.header()?;
    match cast.directory.group(&header.group) {
        Some(view) => body(&*view.config()),
        None => Err(Refusal::new(
            ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST,
            format!("No group in this broker. group: {}", header.group),
        )),
    }
}

/// UPDATE_AND_GET_GROUP_FORBIDDEN: only a group and a topic that exist can be parted.
pub async fn forbid(cast: &BrokerCast, call: &Call) -> Answer {
    let UpdateAndGetGroupForbiddenHeader { group, topic, readable } = call.command.header()?;
    if readable.is_some() {
        cast.directory.group(&group).ok_or_else(|| unknown(&group))?;
        cast.topic(&topic)?;
    }
    let forbid = ForbidReading { group: group.clone(), topic: topic.clone(), readable };
    let (readable, saved) = cast.groups.send(forbid).await?;
    if let Some(saved) = saved {
        saved.await.map_err(|_| Refusal::gone("Groups"))??;
    }
    body(&GroupForbidden { group, readable, topic })
}
