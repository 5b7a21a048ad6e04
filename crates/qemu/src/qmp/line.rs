//! Lines of bounded length.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// Why no line came.
#[derive(Debug)]
pub(super) enum LineError {
    /// The stream ended, perhaps within a line.
    End,
    /// The line is longer than allowed.
    TooLong,
    /// Reading failed.
    Io(io::Error),
}

/// Reads up to the next newline, which is not returned. Holds at most `max_bytes` and one buffer.
pub(super) async fn read_line(
    reader: &mut (impl AsyncBufRead + Unpin),
    max_bytes: usize,
) -> Result<Vec<u8>, LineError> {
    let mut line = Vec::new();
    loop {
        let available = reader.fill_buf().await.map_err(LineError::Io)?;
        if available.is_empty() {
            return Err(LineError::End);
        }
        let newline = available.iter().position(|&byte| byte == b'\n');
        let piece = &available[..newline.unwrap_or(available.len())];
        if line.len() + piece.len() > max_bytes {
            return Err(LineError::TooLong);
        }
        line.extend_from_slice(piece);
        let consumed = piece.len() + usize::from(newline.is_some());
        reader.consume(consumed);
        if newline.is_some() {
            return Ok(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_limit_is_exact_and_lines_may_span_buffers() {
        let text: &[u8] = b"12345\n\n123456\n";
        let mut reader = tokio::io::BufReader::with_capacity(2, text);
        assert_eq!(read_line(&mut reader, 5).await.unwrap(), b"12345");
        assert_eq!(read_line(&mut reader, 5).await.unwrap(), b"");
        assert!(matches!(
            read_line(&mut reader, 5).await,
            Err(LineError::TooLong)
        ));
    }

    #[tokio::test]
    async fn an_unfinished_line_is_an_end() {
        let mut reader: &[u8] = b"123";
        assert!(matches!(
            read_line(&mut reader, 5).await,
            Err(LineError::End)
        ));
    }
}
