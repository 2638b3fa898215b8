# The command `turnledger` with what the server and workers need, for compose.yaml.
FROM python:3.12.11-slim-bookworm
COPY . /source
RUN pip install --no-cache-dir '/source[http,postgres]' && rm -r /source
RUN useradd --uid 10001 turnledger
USER 10001
CMD ["turnledger", "--help"]
