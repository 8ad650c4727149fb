//! Who may do what, as relations between subjects and objects.

pub mod check;
pub mod schema;
pub mod tuples;

use std::fmt;

use self::tuples::{Holder, Thing, Tuple};

/// What a relation is held on. Each noun knows how to name its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Object(Thing);

macro_rules! relations {
    ($($variant:ident = $name:literal),* $(,)?) => {
        /// The relations that use-cases ask for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Relation {
            $($variant,)*
        }

        impl Relation {
            pub const fn name(self) -> &'static str {
                match self {
                    $(Relation::$variant => $name,)*
                }
            }
        }
    };
}

relations! {
    Admin = "admin",
    Auditor = "auditor",
    CanCapture = "can_capture",
    CanConnectAdb = "can_connect_adb",
    CanCreateBackup = "can_create_backup",
    CanCreateDevice = "can_create_device",
    CanCreateEmulator = "can_create_emulator",
    CanCreateRestore = "can_create_restore",
    CanCreateTenant = "can_create_tenant",
    CanDelete = "can_delete",
    CanDemoteRoot = "can_demote_root",
    CanDeploy = "can_deploy",
    CanEdit = "can_edit",
    CanImportSnapshot = "can_import_snapshot",
    CanListUsers = "can_list_users",
    CanManageAdmins = "can_manage_admins",
    CanManageGrants = "can_manage_grants",
    CanManageGroups = "can_manage_groups",
    CanManageMembers = "can_manage_members",
    CanManageUsers = "can_manage_users",
    CanPromoteRoot = "can_promote_root",
    CanReadVehicle = "can_read_vehicle",
    CanRestart = "can_restart",
    CanSwapSnapshot = "can_swap_snapshot",
    CanUpdate = "can_update",
    CanUseVehicle = "can_use_vehicle",
    CanVerify = "can_verify",
    CanView = "can_view",
    CanViewAudit = "can_view_audit",
    CanViewDiskpool = "can_view_diskpool",
    CanViewLogs = "can_view_logs",
    CanViewMembers = "can_view_members",
    Holder = "holder",
    Member = "member",
    Operator = "operator",
}

impl Object {
    pub fn new(kind: &str, id: impl fmt::Display) -> Self {
        Object(Thing::new(kind, &id.to_string()))
    }

    /// The installation itself.
    pub fn system() -> Self {
        Object::new("system", "paddock")
    }

    pub fn thing(&self) -> Thing {
        self.0.clone()
    }

    /// The tuple that gives the holder a relation on this.
    pub fn given_to(&self, relation: &str, holder: Holder) -> Tuple {
        Tuple { object: self.0.clone(), relation: relation.into(), holder }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
