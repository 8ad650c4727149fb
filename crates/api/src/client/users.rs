//! Users and their invitations, as a client asks for them.

use super::{Client, Result, Versioned, encode};
use crate::invitations::Invitation;
use crate::page::Page;
use crate::users::{ListUsers, NewUser, User, UserSpec};

impl Client {
    pub async fn list_users(&self, query: &ListUsers) -> Result<Page<User>> {
        self.list("/api/v1/users", query).await
    }

    pub async fn get_user(&self, id: &str) -> Result<Versioned<User>> {
        self.get(&user(id)).await
    }

    pub async fn create_user(&self, new: &NewUser) -> Result<Versioned<User>> {
        self.create("/api/v1/users", Some(new)).await
    }

    pub async fn update_user(
        &self,
        id: &str,
        spec: &UserSpec,
        etag: Option<&str>,
    ) -> Result<Versioned<User>> {
        self.replace(&user(id), spec, etag).await
    }

    pub async fn create_invitation(&self, user_id: &str) -> Result<Invitation> {
        Ok(self.create(&format!("{}/invitations", user(user_id)), None::<&()>).await?.value)
    }
}

fn user(id: &str) -> String {
    format!("/api/v1/users/{}", encode(id))
}
