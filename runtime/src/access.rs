//! Who somebody is, and what he may do: the API server says both (TokenReview, SubjectAccessReview).

use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};

/// Whom a token is for; `None` if the API server does not know it.
///
/// # Errors
/// If it can not be asked.
pub async fn review_token(client: &Client, token: &str) -> Result<Option<UserInfo>, kube::Error> {
    let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
    let api: Api<TokenReview> = Api::all(client.clone());
    let answer = api.create(&PostParams::default(), &TokenReview { spec, ..TokenReview::default() }).await?;
    let status = answer.status.unwrap_or_default();
    let is_named = |user: &UserInfo| user.username.as_ref().is_some_and(|name| !name.is_empty());
    Ok(status.user.filter(|user| status.authenticated == Some(true) && is_named(user)))
}

/// Whether a user may do what `asked` has as its attributes.
///
/// # Errors
/// If the API server can not be asked.
pub async fn review_access(
    client: &Client,
    user: &UserInfo,
    asked: SubjectAccessReviewSpec,
) -> Result<bool, kube::Error> {
    let spec = SubjectAccessReviewSpec {
        user: user.username.clone(),
        uid: user.uid.clone(),
        groups: user.groups.clone(),
        extra: user.extra.clone(),
        ..asked
    };
    let api: Api<SubjectAccessReview> = Api::all(client.clone());
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let answer = api.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed && status.denied != Some(true)))
}
