//! Invitations: the link by which someone chooses their password, shown once.

use paddock_api::client::Client;
use paddock_api::invitations::Invitation;

use crate::output;

/// The invitation with its link written out, so that it can be handed on.
pub fn written_out(invitation: Invitation, client: &Client) -> Invitation {
    Invitation { url: invitation.url.map(|path| client.url(&path)), ..invitation }
}

/// Tells the link beside the data; `user` is who can be invited again.
pub fn tell(invitation: &Invitation, user: &str) {
    let until = invitation.expires_at.as_deref().unwrap_or("it is used");
    let text = match &invitation.url {
        Some(url) => {
            format!(
                "Give them this link to choose a password. It is shown once, and works until {until}:\n  {}",
                output::printable(url)
            )
        }
        None => lost(user),
    };
    output::notice(&text);
}

/// What to do where the link was told to somebody who did not hear it.
pub fn lost(user: &str) -> String {
    output::printable(&format!(
        "The link was told once already and is not told again. For another: paddock user invite {user}"
    ))
}
