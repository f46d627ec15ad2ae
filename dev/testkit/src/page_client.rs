//! A client of the page, as a browser without scripts: it keeps the cookies, sends forms with the
//! token of the page that showed them, and follows redirects when the test asks for it.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use reqwest::{Client, Method, RequestBuilder, header, redirect::Policy};

use crate::TestApp;

/// A call fails if no byte arrives from the server for this long.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// A browser of one person.
pub struct PageClient {
    client: Client,
    address: SocketAddr,
    /// The cookies, by name.
    pub cookies: BTreeMap<String, String>,
    /// The token of the page that was opened last.
    pub csrf: String,
}

/// An answer of the page.
#[derive(Debug)]
pub struct PageAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: header::HeaderMap,
    /// The HTML, or another body.
    pub body: String,
}

impl PageAnswer {
    /// The header as text; empty: there is none.
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().expect("is text"))
    }
}

impl TestApp {
    /// A browser that has opened no page yet.
    pub fn page_client(&self) -> PageClient {
        PageClient::at(self.addresses.http)
    }

    /// A browser of the holder of this key or token.
    pub async fn sign_in_to_page(&self, credential: &str) -> PageClient {
        let mut browser = self.page_client();
        browser.sign_in(credential).await;
        browser
    }
}

impl PageClient {
    /// A browser for the server at this address.
    pub fn at(address: SocketAddr) -> Self {
        let client = Client::builder()
            .no_proxy()
            .redirect(Policy::none())
            .read_timeout(READ_TIMEOUT)
            .build();
        Self {
            client: client.expect("a client"),
            address,
            cookies: BTreeMap::new(),
            csrf: String::new(),
        }
    }

    /// The header with the cookies; empty: there are none.
    pub fn cookie_header(&self) -> String {
        let pairs = self.cookies.iter();
        let pairs: Vec<String> = pairs
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        pairs.join("; ")
    }

    /// Name and value of the cookie of a session. None: nobody is signed in.
    pub fn session(&self) -> Option<(&str, &str)> {
        let mut cookies = self.cookies.iter();
        let session = cookies.find(|(_, value)| value.starts_with("anneals_"));
        session.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// A request with the cookies, as a browser sends it.
    pub fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let url = format!("http://{}{path}", self.address);
        let request = self
            .client
            .request(method, url)
            .header("accept", "text/html")
            .header("sec-fetch-site", "same-origin");
        if self.cookies.is_empty() {
            return request;
        }
        request.header("cookie", self.cookie_header())
    }

    /// Sends a request, and keeps the cookies and the token of its answer.
    pub async fn send(&mut self, request: RequestBuilder) -> PageAnswer {
        let response = request.send().await.expect("the server answers");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.text().await.expect("the answer is whole");
        for cookie in headers.get_all("set-cookie") {
            let cookie = cookie.to_str().expect("is text");
            let pair = cookie.split(';').next().unwrap_or_default();
            let (name, value) = pair.split_once('=').expect("a pair");
            if cookie.contains("Max-Age=0") {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        if let Some(token) = csrf_token(&body) {
            self.csrf = token;
        }
        PageAnswer {
            status,
            headers,
            body,
        }
    }

    /// Opens a page.
    pub async fn get(&mut self, path: &str) -> PageAnswer {
        let request = self.request("GET", path);
        self.send(request).await
    }

    /// Sends a form with these fields, and the token of the page that was opened last.
    pub async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> PageAnswer {
        let mut form: Vec<(&str, &str)> = fields.to_vec();
        form.push(("csrf", &self.csrf));
        let body = serde_urlencoded::to_string(&form).expect("texts");
        let request = self.form(path, body);
        self.send(request).await
    }

    /// A request with this form, without a token.
    pub fn form(&self, path: &str, body: String) -> RequestBuilder {
        self.request("POST", path)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body)
    }

    /// Signs in.
    pub async fn sign_in(&mut self, credential: &str) {
        self.get("/sign-in").await;
        let answer = self.post("/sign-in", &[("credential", credential)]).await;
        assert_eq!(answer.status, 303, "{answer:?}");
        // The token of the sign-in page is for its own form.
        self.get("/conversations").await;
    }
}

/// The token in the head of a page.
fn csrf_token(body: &str) -> Option<String> {
    let (_, rest) = body.split_once("<meta name=\"csrf\" content=\"")?;
    let (token, _) = rest.split_once('"')?;
    Some(token.to_owned())
}
