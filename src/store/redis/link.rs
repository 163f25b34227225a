//! The way to the servers: one connection that all calls share, and that comes
//! up again when it breaks; or one to each node of a cluster.

use std::sync::{Mutex, MutexGuard, PoisonError};

use redis::{
    Client, Cmd, ErrorKind, RedisError, RedisResult, ScriptInvocation, Value,
    aio::{ConnectionManager, ConnectionManagerConfig},
    cluster::ClusterClient,
    cluster_async::ClusterConnection,
    cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo, SingleNodeRoutingInfo},
    from_redis_value,
};

use super::{
    error::{self, is_of_a_replica},
    options::{RedisStoreBuilder, Target},
};

pub(super) enum Link {
    Server(Box<Server>),
    Cluster(ClusterConnection),
}

/// One server, or whatever its address leads to.
pub(super) struct Server {
    client: Client,
    config: ConnectionManagerConfig,
    connection: Mutex<ConnectionManager>,
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
                    connection: Mutex::new(connection),
                })))
            }
            Target::Cluster(nodes) => {
                let client = ClusterClient::builder(nodes)
                    .connection_timeout(options.connect_timeout)
                    .response_timeout(options.response_timeout)
                    .build()?;
                Ok(Self::Cluster(client.get_async_connection().await?))
            }
        }
    }

    /// Runs a script where its key lives.
    pub(super) async fn run(&self, call: &ScriptInvocation<'_>) -> RedisResult<Value> {
        match self {
            Self::Server(server) => {
                let ran = call.invoke_async(&mut server.connection()).await;
                server.noting(ran)
            }
            Self::Cluster(cluster) => {
                let mut cluster = cluster.clone();
                match call.invoke_async(&mut cluster).await {
                    Err(error) if error::is_asked_elsewhere(&error) => {
                        run_elsewhere(&mut cluster, call, &error).await
                    }
                    ran => ran,
                }
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
                let answers = cluster
                    .clone()
                    .route_command(command, RoutingInfo::MultiNode(all))
                    .await?;
                let answers: Vec<(String, Value)> = match answers {
                    Value::Map(answers) => answers
                        .into_iter()
                        .map(|(address, answer)| Ok((from_redis_value(address)?, answer)))
                        .collect::<RedisResult<_>>()?,
                    _ => return Err(unexpected("answers by address")),
                };
                answers
                    .into_iter()
                    .map(|(address, answer)| Ok((Master::at(&address)?, answer)))
                    .collect()
            }
        }
    }

    pub(super) async fn ask(&self, master: &Master, command: Cmd) -> RedisResult<Value> {
        match (self, master) {
            (Self::Server(server), _) => {
                let answer = command.query_async(&mut server.connection()).await;
                server.noting(answer)
            }
            (Self::Cluster(cluster), Master::OfCluster { host, port }) => {
                let (host, port) = (host.clone(), *port);
                let routing =
                    RoutingInfo::SingleNode(SingleNodeRoutingInfo::ByAddress { host, port });
                cluster.clone().route_command(command, routing).await
            }
            (Self::Cluster(cluster), Master::TheServer) => {
                let routing = RoutingInfo::SingleNode(SingleNodeRoutingInfo::RandomPrimary);
                cluster.clone().route_command(command, routing).await
            }
        }
    }
}

impl Server {
    fn connection(&self) -> ConnectionManager {
        self.current().clone()
    }

    /// A server that became a replica keeps its connections, though its address
    /// may lead to the new master by now.
    fn noting<T>(&self, answer: RedisResult<T>) -> RedisResult<T> {
        if answer.as_ref().is_err_and(is_of_a_replica) {
            let (client, config) = (self.client.clone(), self.config.clone());
            *self.current() = ConnectionManager::new_lazy_with_config(client, config)?;
        }
        answer
    }

    fn current(&self) -> MutexGuard<'_, ConnectionManager> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
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
    let (address, _slot) = sent_on.redirect_node().ok_or_else(|| unexpected("a node"))?;
    let Master::OfCluster { host, port } = Master::at(address)? else {
        return Err(unexpected("a node of the cluster"));
    };
    let mut both = redis::pipe();
    both.cmd("ASKING").invoke_script(call);
    let run = async |cluster: &mut ClusterConnection| {
        let host = host.clone();
        let there = SingleNodeRoutingInfo::ByAddress { host, port };
        let answers = cluster.route_pipeline(both.clone(), 1, 1, there).await?;
        let answer = answers.into_iter().next();
        answer.ok_or_else(|| unexpected("an answer"))?.extract_error()
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
