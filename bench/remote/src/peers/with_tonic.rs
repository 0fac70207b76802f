//! tonic: a unary gRPC call with a body of bytes, over one HTTP/2 connection.

use anyhow::Result;
use bytes::{Buf, BufMut, Bytes};
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::http::{self};
use tonic::codegen::{BoxFuture, Service, StdError};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

use crate::contestant::{Connected, Remote};
use crate::process::{self, Process};

const PATH: &str = "/bench.Echo/Echo";

/// A codec of raw bytes, to exclude the cost of a message format.
#[derive(Clone, Copy, Default)]
struct Plain;

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Plain;
    type Decoder = Plain;

    fn encoder(&mut self) -> Plain {
        Plain
    }

    fn decoder(&mut self) -> Plain {
        Plain
    }
}

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(item);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, input: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = input.remaining();
        Ok(Some(input.copy_to_bytes(length)))
    }
}

/// The service, as generated code would define it.
#[derive(Clone)]
struct EchoServer;

struct Handler;

impl UnaryService<Bytes> for Handler {
    type Response = Bytes;
    type Future = std::future::Ready<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        std::future::ready(Ok(Response::new(request.into_inner())))
    }
}

impl Service<http::Request<Body>> for EchoServer {
    type Response = http::Response<Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move { Ok(tonic::server::Grpc::new(Plain).unary(Handler, request).await) })
    }
}

impl NamedService for EchoServer {
    const NAME: &'static str = "bench.Echo";
}

pub(crate) async fn serve() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    process::print_ready(listener.local_addr()?);
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    Server::builder()
        .add_service(EchoServer)
        .serve_with_incoming(incoming)
        .await?;
    Ok(())
}

#[derive(Clone)]
pub(crate) struct Tonic(tonic::client::Grpc<Channel>);

pub(crate) async fn connect() -> Result<Connected<Tonic, Process>> {
    let server = process::start("tonic").await?;
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address))?.tcp_nodelay(true);
    let channel = endpoint.connect().await?;
    Ok(Connected {
        name: "tonic",
        remote: Tonic(tonic::client::Grpc::new(channel)),
        _server: server,
    })
}

impl Remote for Tonic {
    async fn call(&mut self, body: Vec<u8>) -> Result<Vec<u8>> {
        self.0
            .ready()
            .await
            .map_err(StdError::from)
            .map_err(anyhow::Error::from_boxed)?;
        let path = PathAndQuery::from_static(PATH);
        let reply = self.0.unary(Request::new(Bytes::from(body)), path, Plain).await?;
        Ok(reply.into_inner().to_vec())
    }
}
