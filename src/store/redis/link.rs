//! The way to the servers: one connection that all calls share, and that comes
//! up again when it breaks; or one to each node of a cluster.
//!
//! A connection need not break when its server is gone: a server that became a
//! replica keeps it, and one that lost its power or its network says nothing any
//! more. So a call that is refused by a replica, or that is not answered in time,
//! has another connection made, to wherever the address leads by now; of a
//! cluster, to those that its nodes name by now.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{
    Client, Cmd, ErrorKind, RedisError, RedisResult, ScriptInvocation, Value,
    aio::{ConnectionManager, ConnectionManagerConfig},
    cluster::ClusterClient,
    cluster_async::ClusterConnection,
    cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo, SingleNodeRoutingInfo},
    from_redis_value,
};
use tokio::task::JoinHandle;

use super::{
    error::{self, is_of_a_replica},
    options::{RedisStoreBuilder, Target},
};

pub(super) enum Link {
    Server(Box<Server>),
    Cluster(Arc<Cluster>),
}

/// One server, or whatever its address leads to.
pub(super) struct Server {
    client: Client,
    config: ConnectionManagerConfig,
    current: Mutex<Numbered>,
}

/// A connection, and how many there were before it.
#[derive(Clone)]
struct Numbered {
    number: u64,
    connection: ConnectionManager,
}

/// The nodes of a cluster, as the client has found them.
pub(super) struct Cluster {
    client: ClusterClient,
    current: Mutex<ClusterConnection>,
    /// Looks for them anew.
    search: Mutex<Option<JoinHandle<()>>>,
}

/// A server that holds keys of its own.
#[derive(Clone, Debug)]
pub(super) enum Master {
    TheServer,
    OfCluster { host: String, port: u16 },
}

impl Link {
    pub(super) async fn connect(target: Target, options: &RedisStoreBuilder) -> RedisResult<Self> {
        match target {
            Target::Server(info) => {
                let client = Client::open(info)?;
                let config = ConnectionManagerConfig::new()
                    .set_connection_timeout(Some(options.connect_timeout))
                    .set_response_timeout(Some(options.response_timeout))
                    .set_min_delay(SHORTEST_PAUSE)
                    .set_number_of_retries(RECONNECTIONS);
                let connection =
                    ConnectionManager::new_with_config(client.clone(), config.clone()).await?;
                Ok(Self::Server(Box::new(Server {
                    client,
                    config,
                    current: Mutex::new(Numbered {
                        number: 0,
                        connection,
                    }),
                })))
            }
            Target::Cluster(nodes) => {
                let client = ClusterClient::builder(nodes)
                    .connection_timeout(options.connect_timeout)
                    .response_timeout(options.response_timeout)
                    .build()?;
                let connection = client.get_async_connection().await?;
                Ok(Self::Cluster(Arc::new(Cluster {
                    client,
                    current: Mutex::new(connection),
                    search: Mutex::default(),
                })))
            }
        }
    }

    /// Runs a script where its key lives.
    pub(super) async fn run(&self, call: &ScriptInvocation<'_>) -> RedisResult<Value> {
        match self {
            Self::Server(server) => {
                let mut by = server.current().clone();
                let ran = call.invoke_async(&mut by.connection).await;
                server.noting(by.number, ran)
            }
            Self::Cluster(cluster) => {
                let mut nodes = cluster.current().clone();
                let ran = match call.invoke_async(&mut nodes).await {
                    Err(error) if error::is_asked_elsewhere(&error) => {
                        run_elsewhere(&mut nodes, call, &error).await
                    }
                    ran => ran,
                };
                cluster.noting(ran)
            }
        }
    }

    /// Asks all that hold keys of their own.
    pub(super) async fn ask_masters(&self, command: Cmd) -> RedisResult<Vec<(Master, Value)>> {
        match self {
            Self::Server(_) => {
                let answer = self.ask(&Master::TheServer, command).await?;
                Ok(vec![(Master::TheServer, answer)])
            }
            Self::Cluster(cluster) => {
                let all = (MultipleNodeRoutingInfo::AllMasters, None);
                let mut nodes = cluster.current().clone();
                let answers = nodes.route_command(command, RoutingInfo::MultiNode(all));
                let answers = cluster.noting(answers.await)?;
                let Value::Map(answers) = answers else {
                    return Err(unexpected("answers by address"));
                };
                let told = answers.into_iter().map(|(address, answer)| {
                    let address: String = from_redis_value(address)?;
                    Ok((Master::at(&address)?, answer))
                });
                told.collect()
            }
        }
    }

    pub(super) async fn ask(&self, master: &Master, command: Cmd) -> RedisResult<Value> {
        match (self, master) {
            (Self::Server(server), _) => {
                let mut by = server.current().clone();
                let answer = command.query_async(&mut by.connection).await;
                server.noting(by.number, answer)
            }
            (Self::Cluster(cluster), master) => {
                let mut nodes = cluster.current().clone();
                let there = RoutingInfo::SingleNode(master.route());
                let answer = nodes.route_command(command, there);
                cluster.noting(answer.await)
            }
        }
    }
}

impl Server {
    /// Whoever notes first that a connection leads nowhere has it replaced.
    fn noting<T>(&self, number: u64, answer: RedisResult<T>) -> RedisResult<T> {
        let leads_nowhere = |error: &RedisError| error.is_timeout() || is_of_a_replica(error);
        if answer.as_ref().is_err_and(leads_nowhere) {
            let mut current = self.current();
            if current.number == number {
                let (client, config) = (self.client.clone(), self.config.clone());
                *current = Numbered {
                    number: number + 1,
                    connection: ConnectionManager::new_lazy_with_config(client, config)?,
                };
            }
        }
        answer
    }

    fn current(&self) -> MutexGuard<'_, Numbered> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cluster {
    /// The client follows redirections, and a node that is silent redirects
    /// nobody.
    fn noting<T>(self: &Arc<Self>, answer: RedisResult<T>) -> RedisResult<T> {
        if answer.as_ref().is_err_and(RedisError::is_timeout) {
            let mut search = self.search.lock().unwrap_or_else(PoisonError::into_inner);
            if search.as_ref().is_none_or(JoinHandle::is_finished) {
                *search = Some(tokio::spawn(find_nodes(Arc::clone(self))));
            }
        }
        answer
    }

    fn current(&self) -> MutexGuard<'_, ClusterConnection> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn find_nodes(cluster: Arc<Cluster>) {
    match cluster.client.get_async_connection().await {
        Ok(found) => *cluster.current() = found,
        Err(error) => tracing::warn!(%error, "the nodes of the cluster are not found"),
    }
}

impl Master {
    fn at(address: &str) -> RedisResult<Self> {
        let (host, port) = address
            .rsplit_once(':')
            .ok_or_else(|| unexpected("host and port"))?;
        Ok(Self::OfCluster {
            host: host.to_owned(),
            port: port.parse().map_err(|_| unexpected("a port"))?,
        })
    }

    fn route(&self) -> SingleNodeRoutingInfo {
        match self {
            Self::TheServer => SingleNodeRoutingInfo::RandomPrimary,
            Self::OfCluster { host, port } => SingleNodeRoutingInfo::ByAddress {
                host: host.clone(),
                port: *port,
            },
        }
    }
}

/// Runs a script at the node that a slot is moving to.
///
/// A node takes `ASKING` for the next command on the connection. The client
/// sends the two apart, so that those of other calls come in between when many
/// are sent on, and gives up after a while. Here nothing comes in between.
async fn run_elsewhere(
    cluster: &mut ClusterConnection,
    call: &ScriptInvocation<'_>,
    sent_on: &RedisError,
) -> RedisResult<Value> {
    let (address, _slot) = sent_on
        .redirect_node()
        .ok_or_else(|| unexpected("a node"))?;
    let node = Master::at(address)?;
    let mut both = redis::pipe();
    both.cmd("ASKING").invoke_script(call);
    let run = async |cluster: &mut ClusterConnection| {
        let answers = cluster.route_pipeline(both.clone(), 1, 1, node.route());
        let answers = answers.await?;
        let answer = answers.into_iter().next();
        answer
            .ok_or_else(|| unexpected("an answer"))?
            .extract_error()
    };
    match run(cluster).await {
        Err(error) if error::is_unknown_script(&error) => {
            call.load_async(cluster).await?;
            run(cluster).await
        }
        ran => ran,
    }
}

fn unexpected(what: &'static str) -> RedisError {
    RedisError::from((ErrorKind::UnexpectedReturnType, what))
}

/// A connection that breaks is tried again so often, with longer and longer
/// pauses: about half a second in all.
const RECONNECTIONS: usize = 3;
const SHORTEST_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);
